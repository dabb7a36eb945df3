#include "llama-row-stats.h"

#include "llama-row-math.h"

#include <algorithm>
#include <cmath>

static constexpr int32_t BLOCK = 64;

LLAMA_ROW_CLONES
static float block_max(const float * x) {
    float lane[16];
    for (int32_t j = 0; j < 16; ++j) {
        lane[j] = -INFINITY;
    }
    for (int32_t i = 0; i < BLOCK; i += 16) {
        for (int32_t j = 0; j < 16; ++j) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    float max = lane[0];
    for (int32_t j = 1; j < 16; ++j) {
        max = lane[j] > max ? lane[j] : max;
    }
    return max;
}

void llama_row_top_k(const float * row, int32_t n, int32_t k, llama_token * ids, float * logits) {
    k = std::min(k, n);

    int32_t n_top = 0;

    const auto offer = [&](int32_t id, float x) {
        if (n_top == k && !(x > logits[k - 1])) {
            return;
        }
        // ids come in increasing order: an equal logit goes behind the ones that are there
        int32_t j = n_top < k ? n_top++ : k - 1;
        for (; j > 0 && x > logits[j - 1]; --j) {
            ids[j]    = ids[j - 1];
            logits[j] = logits[j - 1];
        }
        ids[j]    = id;
        logits[j] = x;
    };

    int32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        // nearly all blocks hold nothing that beats the k-th best
        if (n_top == k && !(block_max(row + i) > logits[k - 1])) {
            continue;
        }
        for (int32_t j = i; j < i + BLOCK; ++j) {
            offer(j, std::isnan(row[j]) ? -INFINITY : row[j]);
        }
    }
    for (; i < n; ++i) {
        offer(i, std::isnan(row[i]) ? -INFINITY : row[i]);
    }
}

// sums of e = exp(row - max) and of (row - max)*e over n entries
LLAMA_ROW_CLONES
static void exp_sums(const float * row, int32_t n, float max, double * sum_e, double * sum_xe) {
    constexpr int32_t LANES = 16;
    constexpr int32_t CHUNK = 4096; // float lanes are folded into doubles after so many entries

    double se  = 0.0;
    double sxe = 0.0;

    int32_t i = 0;
    while (i + LANES <= n) {
        const int32_t end = std::min(n - LANES, i + CHUNK - LANES);

        float le [LANES] = {};
        float lxe[LANES] = {};
        for (; i <= end; i += LANES) {
            for (int32_t j = 0; j < LANES; ++j) {
                float x = row[i + j] - max;
                x = x > -87.0f ? x : -87.0f; // masked (-inf) and NaN entries vanish: e^-87 is 1e-38
                const float e = exp_neg(x);
                le [j] += e;
                lxe[j] += x * e;
            }
        }
        for (int32_t j = 0; j < LANES; ++j) {
            se  += le [j];
            sxe += lxe[j];
        }
    }
    for (; i < n; ++i) {
        float x = row[i] - max;
        x = x > -87.0f ? x : -87.0f;
        const float e = exp_neg(x);
        se  += e;
        sxe += x * e;
    }

    *sum_e  = se;
    *sum_xe = sxe;
}

void llama_row_lse(const float * row, int32_t n, float max, float * lse, float * entropy) {
    double se  = 0.0;
    double sxe = 0.0;
    exp_sums(row, n, max, &se, &sxe);

    // p = e/se, ln p = x - ln se
    *lse     = (float) (max + std::log(se));
    *entropy = (float) std::max(0.0, std::log(se) - sxe / se);
}
