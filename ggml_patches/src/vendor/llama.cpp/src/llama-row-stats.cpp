#include "llama-row-stats.h"

#include "llama-row-math.h"

#include <algorithm>
#include <cmath>

static constexpr int32_t BLOCK      = 64;
static constexpr int32_t MAX_BLOCKS = 512; // of a row, whose maxima are kept

// the largest entry of each whole block; NaN is passed over
LLAMA_ROW_CLONES
static void block_maxima(const float * row, int32_t n_blocks, int32_t block, float * maxima) {
    for (int32_t b = 0; b < n_blocks; ++b) {
        const float * x = row + (int64_t) b*block;

        float lane[BLOCK];
        for (int32_t j = 0; j < BLOCK; ++j) {
            lane[j] = -INFINITY;
        }
        for (int32_t i = 0; i < block; i += BLOCK) {
            for (int32_t j = 0; j < BLOCK; ++j) {
                lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
            }
        }
        for (int32_t width = BLOCK/2; width > 0; width /= 2) {
            for (int32_t j = 0; j < width; ++j) {
                lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
            }
        }
        maxima[b] = lane[0];
    }
}

// the k-th largest of n numbers, n >= k
static float kth_largest(const float * x, int32_t n, int32_t k) {
    float copy[MAX_BLOCKS];
    std::copy(x, x + n, copy);
    std::nth_element(copy, copy + k - 1, copy + n, [](float a, float b) { return a > b; });
    return copy[k - 1];
}

void llama_row_top_k(const float * row, int32_t n, int32_t k, llama_token * ids, float * logits) {
    k = std::min(k, n);

    int32_t n_top = 0;

    const auto offer = [&](int32_t begin, int32_t end) {
        for (int32_t id = begin; id < end; ++id) {
            const float x = std::isnan(row[id]) ? -INFINITY : row[id];
            if (n_top == k && !(x > logits[k - 1])) {
                continue;
            }
            // ids come in increasing order: an equal logit goes behind the ones that are there
            int32_t j = n_top < k ? n_top++ : k - 1;
            for (; j > 0 && x > logits[j - 1]; --j) {
                ids[j]    = ids[j - 1];
                logits[j] = logits[j - 1];
            }
            ids[j]    = id;
            logits[j] = x;
        }
    };

    // k blocks have a maximum of at least `least`, so what is smaller is not among the k best, and nearly all blocks are
    const int32_t block    = (n/MAX_BLOCKS/BLOCK + 1)*BLOCK;
    const int32_t n_blocks = n/block;

    float maxima[MAX_BLOCKS];
    block_maxima(row, n_blocks, block, maxima);
    const float least = n_blocks >= k && k > 0 ? kth_largest(maxima, n_blocks, k) : -INFINITY;

    for (int32_t b = 0; b < n_blocks; ++b) {
        if (maxima[b] >= least) {
            offer(b*block, (b + 1)*block);
        }
    }
    offer(n_blocks*block, n);
}

// sums of e = exp(row - max) and of (row - max)*e over n entries
LLAMA_ROW_CLONES
static void exp_sums(const float * row, int32_t n, float max, double * sum_e, double * sum_xe) {
    constexpr int32_t CHUNK = 4096; // float lanes are folded into doubles after so many entries

    double se  = 0.0;
    double sxe = 0.0;

    int32_t i = 0;
    while (i + BLOCK <= n) {
        const int32_t end = std::min(n - BLOCK, i + CHUNK - BLOCK);

        float x  [BLOCK];
        float le [BLOCK] = {}; // more lanes than a vector has: shorter loops are unrolled before they could become vectors
        float lxe[BLOCK] = {};
        for (; i <= end; i += BLOCK) {
            // masked (-inf) and NaN entries vanish. with what follows in one loop this is a branch, which no vector can take
            for (int32_t j = 0; j < BLOCK; ++j) {
                const float d = row[i + j] - max;
                x[j] = d > LEAST_EXP ? d : LEAST_EXP;
            }
            for (int32_t j = 0; j < BLOCK; ++j) {
                const float e = exp_in_range(x[j]);
                le [j] += e;
                lxe[j] += x[j] * e;
            }
        }
        for (int32_t j = 0; j < BLOCK; ++j) {
            se  += le [j];
            sxe += lxe[j];
        }
    }
    for (; i < n; ++i) {
        float x = row[i] - max;
        x = x > LEAST_EXP ? x : LEAST_EXP;
        const float e = exp_in_range(x);
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
