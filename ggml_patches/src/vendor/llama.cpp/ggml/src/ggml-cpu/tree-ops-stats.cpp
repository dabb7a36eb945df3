// GGML_OP_TOPK_STATS

#include "tree-ops.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

// e^x is nothing from here on: masked (-INF) and NaN entries vanish
constexpr float LEAST_EXP = -87.0f;

// the best k entries so far. ids are offered in increasing order: an equal logit goes behind the ones that are there
struct top_list {
    int32_t k;
    float   least; // what is smaller is known not to be among the best
    float * logits;
    int32_t ids[GGML_TOPK_STATS_MAX_K];
    int32_t n = 0;

    top_list(int32_t k, float least, float * logits) : k(k), least(least), logits(logits) {}

    bool takes(float x) const { return n < k ? x >= least : x > logits[k - 1]; }

    void offer(const float * row, int64_t begin, int64_t end) {
        for (int64_t id = begin; id < end; ++id) {
            const float x = std::isnan(row[id]) ? -INFINITY : row[id];
            if (!takes(x)) {
                continue;
            }
            int32_t j = n < k ? n++ : k - 1;
            for (; j > 0 && x > logits[j - 1]; --j) {
                ids[j]    = ids[j - 1];
                logits[j] = logits[j - 1];
            }
            ids[j]    = (int32_t) id;
            logits[j] = x;
        }
    }
};

// sums of e = exp(x - max) and of (x - max)*e
struct exp_sums {
    double e  = 0.0;
    double xe = 0.0;

    // max is no longer max but this much less than it
    void rescale(double less) {
        const double scale = std::exp(-less);
        xe = scale*(xe - less*e);
        e *= scale;
    }
};

void write_result(float * result, const top_list & top, const exp_sums & sums) {
    const int32_t k   = top.k;
    const float   max = top.logits[0];

    memcpy(result, top.ids, k*sizeof(int32_t));

    // p = e/sums.e, ln p = x - max - ln(sums.e); a row without a finite maximum has no distribution
    const bool   finite = std::isfinite(max);
    const double log_e  = finite ? std::log(sums.e) : 0.0;

    result[2*k]     = finite ? (float) (max + log_e) : max;
    result[2*k + 1] = finite ? (float) std::max(0.0, log_e - sums.xe/sums.e) : 0.0f;
}

void reference_row(const float * row, int64_t n, int32_t k, float * result) {
    top_list top(k, -INFINITY, result + k);
    top.offer(row, 0, n);

    exp_sums sums;
    for (int64_t id = 0; id < n; ++id) {
        const double x = (double) row[id] - top.logits[0];
        if (x > LEAST_EXP) {
            sums.e  += std::exp(x);
            sums.xe += x*std::exp(x);
        }
    }
    write_result(result, top, sums);
}

constexpr float LOG2_E = 0x1.715476p+0f;

// 2^x = sum of EXP2[i]*x^i for |x| <= 1/2, relative error below 1e-7 before rounding, none at 0
constexpr float EXP2[] = { 1.0f, 0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f, 0x1.5bba14p-10f };

constexpr int32_t LANES      = 64;
constexpr int64_t MAX_BLOCKS = 512;  // of a row, whose maxima are kept
constexpr int64_t CHUNK      = 2048; // entries that stay in the first cache between the two looks at them

#if defined(__AVX2__) && defined(__FMA__)

float horizontal_max(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

double horizontal_sum(__m256 x) {
    const __m256d d = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(d), _mm256_extractf128_pd(d, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

// the largest of n entries, n a multiple of LANES; NaN is passed over
float block_max(const float * x, int64_t n) {
    __m256 m[4];
    for (auto & v : m) {
        v = _mm256_set1_ps(-INFINITY);
    }
    for (int64_t i = 0; i < n; i += 32) {
        for (int j = 0; j < 4; ++j) {
            m[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8*j), m[j]); // the second where one is NaN
        }
    }
    return horizontal_max(_mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
}

// e^x for LEAST_EXP <= x <= 0
__m256 exp_neg(__m256 x) {
    const __m256 log2e = _mm256_set1_ps(LOG2_E);
    const __m256 shift = _mm256_set1_ps(0x1.8p23f); // adding it rounds to a whole number, which then stands in the low bits
    const __m256 z     = _mm256_fmadd_ps(x, log2e, shift);
    const __m256 f     = _mm256_fmsub_ps(x, log2e, _mm256_sub_ps(z, shift));

    __m256 p = _mm256_set1_ps(EXP2[5]);
    for (int i = 4; i >= 0; --i) {
        p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(EXP2[i]));
    }
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(z), 23)));
}

// n a multiple of LANES
void add_exp(const float * x, int64_t n, float max, exp_sums & sums) {
    const __m256 vmax  = _mm256_set1_ps(max);
    const __m256 least = _mm256_set1_ps(LEAST_EXP);

    __m256 e [2];
    __m256 xe[2];
    for (int j = 0; j < 2; ++j) {
        e[j] = xe[j] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += 16) {
        _mm_prefetch((const char *) (x + i + CHUNK), _MM_HINT_T0); // what the next call reads
        for (int j = 0; j < 2; ++j) {
            const __m256 d = _mm256_max_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8*j), vmax), least);
            const __m256 v = exp_neg(d);
            e [j] = _mm256_add_ps(e[j], v);
            xe[j] = _mm256_fmadd_ps(d, v, xe[j]);
        }
    }
    sums.e  += horizontal_sum(e [0]) + horizontal_sum(e [1]);
    sums.xe += horizontal_sum(xe[0]) + horizontal_sum(xe[1]);
}

#else

// loops that compilers make vectors of: more lanes than a vector has, as shorter loops are unrolled before they could become vectors

float block_max(const float * x, int64_t n) {
    float lane[LANES];
    for (int32_t j = 0; j < LANES; ++j) {
        lane[j] = -INFINITY;
    }
    for (int64_t i = 0; i < n; i += LANES) {
        for (int32_t j = 0; j < LANES; ++j) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    return *std::max_element(lane, lane + LANES);
}

float exp_neg(float x) {
    const float   z = x*LOG2_E;
    const int32_t k = (int32_t) (z - 0.5f); // z <= 0: truncation rounds to the nearest
    const float   f = z - (float) k;

    const float p = ((((EXP2[5]*f + EXP2[4])*f + EXP2[3])*f + EXP2[2])*f + EXP2[1])*f + EXP2[0];

    const int32_t bits = (k + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof(scale));

    return p*scale;
}

void add_exp(const float * x, int64_t n, float max, exp_sums & sums) {
    float d [LANES];
    float e [LANES] = {};
    float xe[LANES] = {};
    for (int64_t i = 0; i < n; i += LANES) {
        // a loop of its own: with what follows it becomes a branch for LEAST_EXP, which no vector can take
        for (int32_t j = 0; j < LANES; ++j) {
            d[j] = x[i + j] - max > LEAST_EXP ? x[i + j] - max : LEAST_EXP;
        }
        for (int32_t j = 0; j < LANES; ++j) {
            const float v = exp_neg(d[j]);
            e [j] += v;
            xe[j] += d[j]*v;
        }
    }
    for (int32_t j = 0; j < LANES; ++j) {
        sums.e  += e [j];
        sums.xe += xe[j];
    }
}

#endif

// the k-th largest of n numbers, n >= k
float kth_largest(const float * x, int64_t n, int32_t k) {
    float copy[MAX_BLOCKS];
    std::copy(x, x + n, copy);
    std::nth_element(copy, copy + k - 1, copy + n, [](float a, float b) { return a > b; });
    return copy[k - 1];
}

// entries from the end of the last whole block on, fewer than LANES of them one at a time
void row_stats(const float * row, int64_t n, int32_t k, float * result) {
    const int64_t block    = (n/MAX_BLOCKS/LANES + 1)*LANES;
    const int64_t n_blocks = n/block;
    const int64_t step     = std::max<int64_t>(1, CHUNK/block);

    float    maxima[MAX_BLOCKS];
    float    max = -INFINITY;
    exp_sums sums; // relative to max

    const auto raise = [&](float larger) {
        if (larger > max) {
            if (sums.e > 0.0) {
                sums.rescale((double) larger - max);
            }
            max = larger;
        }
        return max > -INFINITY;
    };

    for (int64_t b0 = 0; b0 < n_blocks; b0 += step) {
        const int64_t b1 = std::min(n_blocks, b0 + step);

        for (int64_t b = b0; b < b1; ++b) {
            maxima[b] = block_max(row + b*block, block);
        }
        if (raise(*std::max_element(maxima + b0, maxima + b1))) {
            add_exp(row + b0*block, (b1 - b0)*block, max, sums);
        }
    }

    float tail[LANES]; // filled up with nothing
    for (int64_t i = n_blocks*block; i < n; i += LANES) {
        const int64_t m = std::min<int64_t>(LANES, n - i);
        std::fill(std::copy(row + i, row + i + m, tail), tail + LANES, -INFINITY);
        if (raise(block_max(tail, LANES))) {
            add_exp(tail, LANES, max, sums);
        }
    }

    // the k-th largest of the maxima is a bar that k entries reach, and nearly all blocks do not
    top_list top(k, n_blocks >= k ? kth_largest(maxima, n_blocks, k) : -INFINITY, result + k);
    for (int64_t b = 0; b < n_blocks; ++b) {
        for (int64_t i = b*block; i < (b + 1)*block && top.takes(maxima[b]); i += LANES) {
            if (top.takes(block_max(row + i, LANES))) {
                top.offer(row, i, i + LANES);
            }
        }
    }
    top.offer(row, n_blocks*block, n);

    write_result(result, top, sums);
}

} // namespace

void ggml_compute_forward_topk_stats(const ggml_compute_params * params, ggml_tensor * dst) {
    const ggml_tensor * src = dst->src[0];

    for (int64_t i = params->ith; i < dst->ne[1]; i += params->nth) {
        const float * row    = (const float *) ((const char *) src->data + i*src->nb[1]);
        float *       result = (float *) ((char *) dst->data + i*dst->nb[1]);

        (params->use_ref ? reference_row : row_stats)(row, src->ne[0], ggml_get_op_params_i32(dst, 0), result);
    }
}

void ggml_topk_stats_row(const float * row, int64_t n, int32_t k, float * result) {
    row_stats(row, n, k, result);
}
