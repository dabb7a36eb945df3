#pragma once

// The vector operations of the panel kernels: one set of names for 256-bit AVX2 and 512-bit AVX-512, with and without the
// VNNI dot product. A panel has PANEL_LANES rows, one per 32-bit lane.
//
// All float steps are intrinsics that a compiler can not contract or reorder, so that every instance of a kernel rounds alike.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && !defined(PANEL_FORCE_256)
#    define PANEL_LANES 16
#elif defined(__AVX2__) && ((defined(__FMA__) && defined(__F16C__)) || defined(_MSC_VER))
#    define PANEL_LANES 8
#endif

#if defined(PANEL_LANES)

#include <immintrin.h>

#include <utility>

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#    define PANEL_VNNI 1
#elif defined(__AVXVNNI__) && PANEL_LANES == 8
#    define PANEL_VNNI 1
#else
#    define PANEL_VNNI 0
#endif

#if defined(_MSC_VER)
#    define PANEL_INLINE static __forceinline
#    define PANEL_LAMBDA
#else
#    define PANEL_INLINE static inline __attribute__((always_inline))
#    define PANEL_LAMBDA __attribute__((always_inline))
#endif

#if PANEL_LANES == 16

using pvi = __m512i;  // integers
using pvf = __m512;   // floats, one per lane

#define PV_OP(name) _mm512_##name
#define PV_SI(name) _mm512_##name##_si512

PANEL_INLINE pvi pv_or (pvi a, pvi b) { return _mm512_or_si512 (a, b); }
PANEL_INLINE pvi pv_and(pvi a, pvi b) { return _mm512_and_si512(a, b); }
PANEL_INLINE pvi pv_xor(pvi a, pvi b) { return _mm512_xor_si512(a, b); }

#else

using pvi = __m256i;
using pvf = __m256;

#define PV_OP(name) _mm256_##name
#define PV_SI(name) _mm256_##name##_si256

PANEL_INLINE pvi pv_or (pvi a, pvi b) { return _mm256_or_si256 (a, b); }
PANEL_INLINE pvi pv_and(pvi a, pvi b) { return _mm256_and_si256(a, b); }
PANEL_INLINE pvi pv_xor(pvi a, pvi b) { return _mm256_xor_si256(a, b); }

#endif

#define PANEL_VEC_BYTES (4*PANEL_LANES)

// f(0), ..., f(N-1) with indices known to the compiler, always unrolled
template <typename F, int... I> PANEL_INLINE void panel_for_each(F && f, std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>()), ...);
}

template <int N, typename F> PANEL_INLINE void panel_for(F && f) {
    panel_for_each(f, std::make_integer_sequence<int, N>());
}

// integers

PANEL_INLINE pvi  pv_zero() { return PV_SI(setzero)(); }
PANEL_INLINE pvi  pv_load (const void * p) { return PV_SI(load)((const pvi *) p); }   // aligned
PANEL_INLINE pvi  pv_loadu(const void * p) { return PV_SI(loadu)((const pvi *) p); }
PANEL_INLINE void pv_store(void * p, pvi a) { PV_SI(store)((pvi *) p, a); }           // aligned

PANEL_INLINE pvi pv_set1_8 (int8_t  x) { return PV_OP(set1_epi8)(x); }
PANEL_INLINE pvi pv_set1_16(int16_t x) { return PV_OP(set1_epi16)(x); }
PANEL_INLINE pvi pv_set1_32(int32_t x) { return PV_OP(set1_epi32)(x); }

// four bytes of memory in every lane
PANEL_INLINE pvi pv_bcast32(const void * p) {
    int32_t x;
    memcpy(&x, p, sizeof(x));
    return PV_OP(set1_epi32)(x);
}

// sixteen bytes of memory in every 128-bit part, for tables and shuffles
PANEL_INLINE pvi pv_bcast128(const void * p) {
#if PANEL_LANES == 16
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) p));
#else
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) p));
#endif
}

PANEL_INLINE pvi pv_add8 (pvi a, pvi b) { return PV_OP(add_epi8)(a, b); }
PANEL_INLINE pvi pv_sub8 (pvi a, pvi b) { return PV_OP(sub_epi8)(a, b); }
PANEL_INLINE pvi pv_add16(pvi a, pvi b) { return PV_OP(add_epi16)(a, b); }
PANEL_INLINE pvi pv_add32(pvi a, pvi b) { return PV_OP(add_epi32)(a, b); }
PANEL_INLINE pvi pv_sub32(pvi a, pvi b) { return PV_OP(sub_epi32)(a, b); }
PANEL_INLINE pvi pv_min_u8(pvi a, pvi b) { return PV_OP(min_epu8)(a, b); }
PANEL_INLINE pvi pv_mul32(pvi a, pvi b) { return PV_OP(mullo_epi32)(a, b); }
PANEL_INLINE pvi pv_madd16(pvi a, pvi b) { return PV_OP(madd_epi16)(a, b); }             // s16 pairs -> s32
PANEL_INLINE pvi pv_madd_u8s8(pvi u, pvi s) { return PV_OP(maddubs_epi16)(u, s); }       // u8 x s8 pairs -> s16, saturating
PANEL_INLINE pvi pv_shuffle8(pvi a, pvi idx) { return PV_OP(shuffle_epi8)(a, idx); }     // within 128-bit parts

template <int N> PANEL_INLINE pvi pv_srl16(pvi a) { return PV_OP(srli_epi16)(a, N); }
template <int N> PANEL_INLINE pvi pv_srl32(pvi a) { return PV_OP(srli_epi32)(a, N); }
template <int N> PANEL_INLINE pvi pv_sll16(pvi a) { return PV_OP(slli_epi16)(a, N); }
template <int N> PANEL_INLINE pvi pv_sll32(pvi a) { return PV_OP(slli_epi32)(a, N); }
template <int N> PANEL_INLINE pvi pv_sra32(pvi a) { return PV_OP(srai_epi32)(a, N); }

// Low and high nibbles of all bytes.
PANEL_INLINE pvi pv_nib_lo(pvi a) { return pv_and(a, pv_set1_8(15)); }
PANEL_INLINE pvi pv_nib_hi(pvi a) { return pv_and(pv_srl16<4>(a), pv_set1_8(15)); }

// The same value. The compiler can not sum in another order, for which it would need more registers than there are.
PANEL_INLINE pvi pv_keep(pvi a) {
#if defined(__GNUC__) && PANEL_LANES == 16
    __asm__("" : "+v"(a));
#elif defined(__GNUC__)
    __asm__("" : "+x"(a));
#endif
    return a;
}

// acc += w . a, four products per lane: w holds u8 weights, a s8 activations within -127..127.
// With VNNI acc holds one int32 per lane; without, a pair of int16 per lane, which must stay in range: 2*127*max(w) per call,
// that is 8 calls for 4-bit weights, 4 for 5-bit, 2 for 6-bit, 1 for 7-bit; 8-bit weights are out of range even once.
// pv_dot_sum makes the int32 sums of either form.
PANEL_INLINE pvi pv_dot(pvi acc, pvi w, pvi a) {
#if PANEL_VNNI && PANEL_LANES == 16
    return _mm512_dpbusd_epi32(acc, w, a);
#elif PANEL_VNNI && defined(__AVX512VNNI__)
    return _mm256_dpbusd_epi32(acc, w, a);
#elif PANEL_VNNI
    return _mm256_dpbusd_avx_epi32(acc, w, a);
#else
    return pv_keep(pv_add16(acc, pv_madd_u8s8(w, a)));
#endif
}

PANEL_INLINE pvi pv_dot_sum(pvi acc) {
#if PANEL_VNNI
    return acc;
#else
    return pv_madd16(acc, pv_set1_16(1));
#endif
}

// acc += w . a, four products per lane in int32, w holds any s8 weights. Weights of more than 7 bits take this or, with VNNI,
// pv_dot with an offset.
PANEL_INLINE pvi pv_dot_s8(pvi acc, pvi w, pvi a) {
#if PANEL_LANES == 16
    const pvi signed_a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
    const pvi abs_w    = _mm512_abs_epi8(w);
#else
    const pvi signed_a = _mm256_sign_epi8(a, w);
    const pvi abs_w    = _mm256_abs_epi8(w);
#endif
    return pv_keep(pv_add32(acc, pv_madd16(pv_madd_u8s8(abs_w, signed_a), pv_set1_16(1))));
}

// floats

PANEL_INLINE pvf  pvf_zero() { return PV_OP(setzero_ps)(); }
PANEL_INLINE pvf  pvf_set1(float x) { return PV_OP(set1_ps)(x); }
PANEL_INLINE pvf  pvf_load (const float * p) { return PV_OP(load_ps)(p); }   // aligned
PANEL_INLINE pvf  pvf_loadu(const float * p) { return PV_OP(loadu_ps)(p); }
PANEL_INLINE void pvf_store (float * p, pvf a) { PV_OP(store_ps)(p, a); }    // aligned
PANEL_INLINE void pvf_storeu(float * p, pvf a) { PV_OP(storeu_ps)(p, a); }
PANEL_INLINE pvf  pvf_from_i32(pvi a) { return PV_OP(cvtepi32_ps)(a); }
#if PANEL_LANES == 16
PANEL_INLINE pvf  pvf_from_bits(pvi a) { return _mm512_castsi512_ps(a); }
#else
PANEL_INLINE pvf  pvf_from_bits(pvi a) { return _mm256_castsi256_ps(a); }
#endif
PANEL_INLINE pvf  pvf_mul(pvf a, pvf b) { return PV_OP(mul_ps)(a, b); }
PANEL_INLINE pvf  pvf_fma(pvf a, pvf b, pvf c) { return PV_OP(fmadd_ps)(a, b, c); }    // a*b + c
PANEL_INLINE pvf  pvf_fnma(pvf a, pvf b, pvf c) { return PV_OP(fnmadd_ps)(a, b, c); }  // c - a*b

// the first n lanes; nothing else is read or written
PANEL_INLINE pvf pvf_load_n(const float * p, int n) {
#if PANEL_LANES == 16
    return _mm512_maskz_loadu_ps((__mmask16) ((1u << n) - 1), p);
#else
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_maskload_ps(p, mask);
#endif
}

PANEL_INLINE void pvf_store_n(float * p, pvf a, int n) {
#if PANEL_LANES == 16
    _mm512_mask_storeu_ps(p, (__mmask16) ((1u << n) - 1), a);
#else
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    _mm256_maskstore_ps(p, mask, a);
#endif
}

// F16 halves of 32-bit lanes as floats
PANEL_INLINE pvf pvf_from_f16_lo(pvi a) {
#if PANEL_LANES == 16
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
#else
    const __m256i even = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
                                          0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, even), 0x08)));
#endif
}

PANEL_INLINE pvf pvf_from_f16_hi(pvi a) { return pvf_from_f16_lo(pv_srl32<16>(a)); }

// F16 pairs of 32-bit lanes as floats
PANEL_INLINE void pvf_from_f16_pairs(pvi a, pvf & lo, pvf & hi) {
#if PANEL_LANES == 16
    alignas(64) static const uint16_t order[32] = { 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                                    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 };
    const __m512i v = _mm512_permutexvar_epi16(_mm512_load_si512(order), a);
    lo = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
    hi = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
#else
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, order), 0xd8);
    lo = _mm256_cvtph_ps(_mm256_castsi256_si128(v));
    hi = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
#endif
}

// the high halves of the lanes of a, the low halves of the lanes of b
PANEL_INLINE pvi pv_halves(pvi a, pvi b) {
#if PANEL_LANES == 16
    return _mm512_mask_blend_epi16(0x55555555, a, b);
#else
    return _mm256_blend_epi16(a, b, 0x55);
#endif
}

// columns

// Up to eight columns of activations, a stride apart, with few registers.
struct panel_cols {
    const char * base[2];
    size_t stride, stride3;

    PANEL_INLINE panel_cols make(const char * acts, size_t acts_stride) {
        return { { acts, acts + 4*acts_stride }, acts_stride, 3*acts_stride };
    }

    inline const char * col(int c) const {
        const char * p = base[c/4];
        switch (c%4) {
            case 0:  return p;
            case 1:  return p + stride;
            case 2:  return p + 2*stride;
            default: return p + stride3;
        }
    }

    inline void advance(size_t bytes) {
        base[0] += bytes;
        base[1] += bytes;
    }
};

#endif  // PANEL_LANES
