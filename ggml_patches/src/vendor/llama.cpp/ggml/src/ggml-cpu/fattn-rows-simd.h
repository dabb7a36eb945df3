#pragma once

// vectors of the row attention. a build without them has no GGML_FATTN_ROWS and leaves all attention to the general path

#include "ggml.h"

#include <cmath>
#include <cstdint>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
#define GGML_FATTN_ROWS
#define GGML_FATTN_ROWS_512
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define GGML_FATTN_ROWS
#endif

#if defined(GGML_FATTN_ROWS)

#include <immintrin.h>

namespace fattn_rows {

// every product that is summed is an explicit FMA: a compiler cannot contract one instance of a template and not another

#if defined(GGML_FATTN_ROWS_512)

using vf = __m512;  // floats
using vi = __m512i; // 32-bit integers, or 64-bit sums of them

static constexpr int W = 16; // floats in a vector

static inline vf   v_zero()                             { return _mm512_setzero_ps(); }
static inline vf   v_set1(float x)                      { return _mm512_set1_ps(x); }
static inline vf   v_load(const float * x)              { return _mm512_loadu_ps(x); }
static inline void v_store(float * y, vf x)             { _mm512_storeu_ps(y, x); }
static inline vf   v_add(vf a, vf b)                    { return _mm512_add_ps(a, b); }
static inline vf   v_sub(vf a, vf b)                    { return _mm512_sub_ps(a, b); }
static inline vf   v_mul(vf a, vf b)                    { return _mm512_mul_ps(a, b); }
static inline vf   v_div(vf a, vf b)                    { return _mm512_div_ps(a, b); }
static inline vf   v_fma(vf a, vf b, vf c)              { return _mm512_fmadd_ps(a, b, c); }
static inline vf   v_fnma(vf a, vf b, vf c)             { return _mm512_fnmadd_ps(a, b, c); }
static inline vf   v_max(vf a, vf b)                    { return _mm512_max_ps(a, b); } // b where a is NaN
static inline vf   v_abs(vf a)                          { return _mm512_abs_ps(a); }
static inline float v_hmax(vf a)                        { return _mm512_reduce_max_ps(a); }
static inline bool v_any_nan(vf a)                      { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }

// x where m is not -inf, -inf elsewhere
static inline vf v_hide(vf m, vf x) {
    const vf ninf = v_set1(-INFINITY);
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(m, ninf, _CMP_EQ_OQ), x, ninf);
}

// |x| with the sign of s
static inline vf v_copysign(vf x, vf s) {
    const vf sign = v_set1(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, x), _mm512_and_ps(sign, s));
}

static inline vf v_cvt_f16(__m256i x)                   { return _mm512_cvtph_ps(x); }
static inline vf v_load(const ggml_fp16_t * x)          { return v_cvt_f16(_mm256_loadu_si256((const __m256i *) x)); }
static inline vf v_load(const ggml_bf16_t * x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) x)), 16));
}
static inline vf v_load(const int8_t * x)               { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) x))); }

static inline vi v_zero_i()                             { return _mm512_setzero_si512(); }
static inline vi v_round(vf x)                          { return _mm512_cvtps_epi32(x); }
static inline vi v_add32(vi a, vi b)                    { return _mm512_add_epi32(a, b); }
static inline vi v_add64(vi a, vi b)                    { return _mm512_add_epi64(a, b); }
static inline vi v_even(vi a)                           { return _mm512_maskz_mov_epi32(0x5555, a); }
static inline vi v_odd(vi a)                            { return _mm512_srli_epi64(a, 32); }
static inline uint64_t v_hsum64(vi a)                   { return (uint64_t) _mm512_reduce_add_epi64(a); }

// b * 2^n, and 0 where x is under lo
static inline vf v_exp_scale(vf b, vf n, vf /*z*/, vf x, float lo) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v_set1(lo), _CMP_NLT_UQ), b, n);
}

#else

using vf = __m256;
using vi = __m256i;

static constexpr int W = 8;

static inline vf   v_zero()                             { return _mm256_setzero_ps(); }
static inline vf   v_set1(float x)                      { return _mm256_set1_ps(x); }
static inline vf   v_load(const float * x)              { return _mm256_loadu_ps(x); }
static inline void v_store(float * y, vf x)             { _mm256_storeu_ps(y, x); }
static inline vf   v_add(vf a, vf b)                    { return _mm256_add_ps(a, b); }
static inline vf   v_sub(vf a, vf b)                    { return _mm256_sub_ps(a, b); }
static inline vf   v_mul(vf a, vf b)                    { return _mm256_mul_ps(a, b); }
static inline vf   v_div(vf a, vf b)                    { return _mm256_div_ps(a, b); }
static inline vf   v_fma(vf a, vf b, vf c)              { return _mm256_fmadd_ps(a, b, c); }
static inline vf   v_fnma(vf a, vf b, vf c)             { return _mm256_fnmadd_ps(a, b, c); }
static inline vf   v_max(vf a, vf b)                    { return _mm256_max_ps(a, b); } // b where a is NaN
static inline vf   v_abs(vf a)                          { return _mm256_andnot_ps(v_set1(-0.0f), a); }
static inline bool v_any_nan(vf a)                      { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }

static inline float v_hmax(vf a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline vf v_hide(vf m, vf x) {
    const vf ninf = v_set1(-INFINITY);
    return _mm256_blendv_ps(x, ninf, _mm256_cmp_ps(m, ninf, _CMP_EQ_OQ));
}

static inline vf v_copysign(vf x, vf s) {
    const vf sign = v_set1(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, x), _mm256_and_ps(sign, s));
}

static inline vf v_load(const ggml_fp16_t * x)          { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) x)); }
static inline vf v_load(const ggml_bf16_t * x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) x)), 16));
}
static inline vf v_load(const int8_t * x)               { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) x))); }

static inline vi v_zero_i()                             { return _mm256_setzero_si256(); }
static inline vi v_round(vf x)                          { return _mm256_cvtps_epi32(x); }
static inline vi v_add32(vi a, vi b)                    { return _mm256_add_epi32(a, b); }
static inline vi v_add64(vi a, vi b)                    { return _mm256_add_epi64(a, b); }
static inline vi v_even(vi a)                           { return _mm256_blend_epi32(a, v_zero_i(), 0xaa); }
static inline vi v_odd(vi a)                            { return _mm256_srli_epi64(a, 32); }

static inline uint64_t v_hsum64(vi a) {
    uint64_t x[4];
    _mm256_storeu_si256((__m256i *) x, a);
    return x[0] + x[1] + x[2] + x[3];
}

static inline vf v_exp_scale(vf b, vf /*n*/, vf z, vf x, float lo) {
    const __m256i e = _mm256_slli_epi32(_mm256_castps_si256(z), 23);
    const vf      k = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v_set1(1.0f)), e));
    return _mm256_and_ps(v_mul(b, k), _mm256_cmp_ps(x, v_set1(lo), _CMP_NLT_UQ));
}

#endif

// sums of 8 lanes in any build: a vector of 16 holds those of two cells

static inline __m256 half_to_float(__m128i x, ggml_fp16_t) { return _mm256_cvtph_ps(x); }
static inline __m256 half_to_float(__m128i x, ggml_bf16_t) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }

#if defined(GGML_FATTN_ROWS_512)

static inline __m512 half_to_float(__m256i x, ggml_fp16_t) { return _mm512_cvtph_ps(x); }
static inline __m512 half_to_float(__m256i x, ggml_bf16_t) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }

static inline vf load8_twice(const float * x) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(x)); }

static inline vf load8_of_two(const float * a, const float * b) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(a)), _mm256_loadu_ps(b), 1);
}

template <typename T>
static inline vf load8_of_two(const T * a, const T * b) {
    const __m256i lo = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *) a));
    return half_to_float(_mm256_inserti128_si256(lo, _mm_loadu_si128((const __m128i *) b), 1), T());
}

static inline void store8_of_two(float * a, float * b, vf x) {
    _mm256_storeu_ps(a, _mm512_castps512_ps256(x));
    _mm256_storeu_ps(b, _mm512_extractf32x8_ps(x, 1));
}

#else

static inline vf load8_twice(const float * x) { return _mm256_loadu_ps(x); }

static inline vf load8_of_two(const float * a, const float *) { return _mm256_loadu_ps(a); }

template <typename T>
static inline vf load8_of_two(const T * a, const T *) { return half_to_float(_mm_loadu_si128((const __m128i *) a), T()); }

static inline void store8_of_two(float * a, float *, vf x) { _mm256_storeu_ps(a, x); }

#endif

// the sums of the 8 lanes of 4 vectors, or of both halves of them: ((l0 + l2) + (l1 + l3)) + ((l4 + l6) + (l5 + l7))
static inline void store_hsums(float * s, vf a0, vf a1, vf a2, vf a3) {
#if defined(GGML_FATTN_ROWS_512)
    const vf t0 = v_add(_mm512_unpacklo_ps(a0, a1), _mm512_unpackhi_ps(a0, a1));
    const vf t1 = v_add(_mm512_unpacklo_ps(a2, a3), _mm512_unpackhi_ps(a2, a3));
    const vf u  = v_add(_mm512_shuffle_ps(t0, t1, 0x44), _mm512_shuffle_ps(t0, t1, 0xee));
    const vf w  = v_add(u, _mm512_shuffle_f32x4(u, u, 0xb1));
    _mm_storeu_ps(s,     _mm512_castps512_ps128(w));
    _mm_storeu_ps(s + 4, _mm512_extractf32x4_ps(w, 2));
#else
    const vf t0 = v_add(_mm256_unpacklo_ps(a0, a1), _mm256_unpackhi_ps(a0, a1));
    const vf t1 = v_add(_mm256_unpacklo_ps(a2, a3), _mm256_unpackhi_ps(a2, a3));
    const vf u  = v_add(_mm256_shuffle_ps(t0, t1, 0x44), _mm256_shuffle_ps(t0, t1, 0xee));
    _mm_storeu_ps(s, _mm_add_ps(_mm256_castps256_ps128(u), _mm256_extractf128_ps(u, 1)));
#endif
}

// exp(x) for x <= 0, within 3 ulp. exactly 1 at 0, exactly 0 under -87, where the result would leave the normal floats. NaN stays NaN
static inline vf v_exp_neg(vf x) {
    const vf magic = v_set1(0x1.8p23f); // adding it rounds to an integer, which then sits in the low bits
    const vf z = v_fma(x, v_set1(0x1.715476p+0f), magic);
    const vf n = v_sub(z, magic);
    const vf b = v_fnma(n, v_set1(0x1.7f7d1cp-20f), v_fnma(n, v_set1(0x1.62e4p-1f), x));
    const vf u = v_mul(b, b);
    const vf p = v_fma(v_fma(v_fma(v_set1(0x1.0e4020p-7f), b, v_set1(0x1.573e2ep-5f)), u,
                             v_fma(v_set1(0x1.555e66p-3f), b, v_set1(0x1.fffdb6p-2f))),
                       u, v_fma(v_set1(0x1.ffffecp-1f), b, v_set1(1.0f)));
    return v_exp_scale(p, n, z, x, -87.0f);
}

static inline vf v_tanh(vf x) {
    const vf t = v_exp_neg(v_mul(v_abs(x), v_set1(-2.0f)));
    const vf o = v_set1(1.0f);
    return v_copysign(v_div(v_sub(o, t), v_add(o, t)), x);
}

} // namespace fattn_rows

#endif
