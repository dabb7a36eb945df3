#pragma once

// The activations of super-blocks of 256 weights: eight bits, rounded as block_q8_K is.

#include "panel-simd.h"

#if defined(PANEL_LANES)

#include <math.h>
#include <stddef.h>
#include <string.h>

// One super-block of one column: like block_q8_K, with the sums of 32 next to those of 16.
struct acts256 {
    int8_t  qs[256];
    int16_t sums16[16];
    int16_t sums32[8];
    float   d;
    char    pad[12];
};
static_assert(sizeof(acts256) == 5*64, "whole cache lines");

// The first of the values that are largest in magnitude, as block_q8_K takes it.
static inline float max_signed(const float * x) {
    __m256 lo = _mm256_setzero_ps();
    __m256 hi = _mm256_setzero_ps();
    for (int i = 0; i < 256; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        lo = _mm256_min_ps(v, lo);
        hi = _mm256_max_ps(v, hi);
    }
    float los[8];
    float his[8];
    _mm256_storeu_ps(los, lo);
    _mm256_storeu_ps(his, hi);
    float min = 0.0f;
    float max = 0.0f;
    for (int i = 0; i < 8; i++) {
        min = los[i] < min ? los[i] : min;
        max = his[i] > max ? his[i] : max;
    }
    if (max != -min) {
        return max > -min ? max : min;
    }
    for (int i = 0; i < 256; i++) {
        if (fabsf(x[i]) == max) {
            return x[i];
        }
    }
    return 0.0f;
}

// 32 values times scale, rounded to int8
static inline __m256i quantize32(const float * x, __m256 scale) {
    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8*i), scale));
    }
    const __m256i a = _mm256_packs_epi32(v[0], v[1]);
    const __m256i b = _mm256_packs_epi32(v[2], v[3]);
    // the packs work within 128-bit parts
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline void acts_quantize256(const float * x, acts256 * y) {
    memset(y->sums16, 0, sizeof(*y) - offsetof(acts256, sums16));
    const float max = max_signed(x);
    if (max == 0.0f) {
        memset(y->qs, 0, sizeof(y->qs));
        return;
    }
    const float  inv   = -127.0f/max;
    const __m256 scale = _mm256_set1_ps(inv);
    const __m256i ones = _mm256_set1_epi8(1);
    for (int i = 0; i < 8; i++) {
        const __m256i q = quantize32(x + 32*i, scale);
        _mm256_storeu_si256((__m256i *) (y->qs + 32*i), q);
        __m256i s = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, q), _mm256_set1_epi16(1));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
        const int s0 = _mm256_extract_epi32(s, 0);
        const int s1 = _mm256_extract_epi32(s, 4);
        y->sums16[2*i]     = (int16_t) s0;
        y->sums16[2*i + 1] = (int16_t) s1;
        y->sums32[i]       = (int16_t) (s0 + s1);
    }
    y->d = 1.0f/inv;
}

#endif  // PANEL_LANES
