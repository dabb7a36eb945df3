#pragma once

// The activations that the kernels of panel-block32.cpp read.

#include "panel-simd.h"

#include "ggml.h"

namespace {

// Activations of one block. For weights with an offset (the unsigned quant is the weight plus the offset) sum is the
// int32 that takes the offset out of the integer product, for weights with a minimum the F32 that it is multiplied with.
struct acts32 {
    float  d;
    int32_t sum;
    int8_t q[32];
};

static_assert(sizeof(acts32) == 40, "8 blocks fill cache lines");

static const int ACTS_SPLIT = 8*32;

static size_t acts_size(int64_t k) {
    return GGML_PAD(k/32*sizeof(acts32), 64);
}

static inline __m256 abs_max(__m256 a, __m256 b) {
    return _mm256_max_ps(a, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), b));
}

static inline float max_of(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

static inline int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 1));
    return _mm_cvtsi128_si32(s);
}

// The quants of ggml's Q8_0 on this architecture, with the scale in full precision. Returns the sum of the quants.
static inline int32_t quantize_block(const float * x, acts32 & a) {
    __m256 v[4];
    __m256 m = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8*i);
        m = abs_max(m, v[i]);
    }
    const float max = max_of(m);

    // below this the inverse is not finite, and the values do not matter
    const float id = max > 1e-36f ? 127.0f/max : 0.0f;
    a.d = max/127.0f;

    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(id)));
    }
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    const __m256i q16 = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_storeu_si256((__m256i *) a.q, _mm256_permutevar8x32_epi32(q16, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    return sum_of(sum);
}

// Moves the values of a block into the order that format::rotate tells of.
template <int rotate> static inline void rotate_block(acts32 & a) {
    __m256i q = _mm256_loadu_si256((const __m256i *) a.q);
    if (rotate == 16) {
        q = _mm256_alignr_epi8(q, q, 14);
    } else if (rotate == 32) {
        q = _mm256_alignr_epi8(q, _mm256_permute2x128_si256(q, q, 1), 14);
    }
    _mm256_storeu_si256((__m256i *) a.q, q);
}

template <int offset, int rotate> static void acts_quantize(const float * x, void * acts, int64_t k) {
    acts32 * a = (acts32 *) acts;
    for (int64_t b = 0; b < k/32; b++) {
        const int32_t sum = quantize_block(x + 32*b, a[b]);
        if (b%2 == 0) {
            rotate_block<rotate>(a[b]);
        }
        if (offset != 0) {
            a[b].sum = -offset*sum;
        } else {
            const float s = a[b].d*(float) sum;
            memcpy(&a[b].sum, &s, sizeof(s));
        }
    }
}

}  // namespace
