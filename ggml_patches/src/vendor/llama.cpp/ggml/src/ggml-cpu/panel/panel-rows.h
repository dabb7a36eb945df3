#pragma once

// The rows of a panel: where they lie in memory, and how four bytes of each come into one vector.

#include "panel-simd.h"

#if defined(PANEL_LANES)

// All PANEL_LANES rows, a stride apart: few registers, addressed as base + {0, 1, 2, 3} strides.
struct panel_rows_full {
    const char * base[PANEL_LANES/4];
    size_t stride, stride3;

    PANEL_INLINE panel_rows_full make(const char * w, size_t w_stride, int) {
        panel_rows_full rows;
        for (int i = 0; i < PANEL_LANES/4; i++) {
            rows.base[i] = w + 4*i*w_stride;
        }
        rows.stride  = w_stride;
        rows.stride3 = 3*w_stride;
        return rows;
    }

    inline const char * row(int r) const {
        const char * p = base[r/4];
        switch (r%4) {
            case 0:  return p;
            case 1:  return p + stride;
            case 2:  return p + 2*stride;
            default: return p + stride3;
        }
    }

    inline void advance(size_t bytes) {
        for (int i = 0; i < PANEL_LANES/4; i++) {
            base[i] += bytes;
        }
    }
};

// The last panel of a matrix: lanes without a row repeat the last row.
struct panel_rows_part {
    const char * ptr[PANEL_LANES];

    PANEL_INLINE panel_rows_part make(const char * w, size_t w_stride, int n_rows) {
        panel_rows_part rows;
        for (int r = 0; r < PANEL_LANES; r++) {
            rows.ptr[r] = w + (size_t) (r < n_rows ? r : n_rows - 1)*w_stride;
        }
        return rows;
    }

    inline const char * row(int r) const { return ptr[r]; }

    inline void advance(size_t bytes) {
        for (int r = 0; r < PANEL_LANES; r++) {
            ptr[r] += bytes;
        }
    }
};

// sixteen bytes of rows r, r+4, ... side by side
template <typename rows_t> PANEL_INLINE pvi pv_load_rows16(const rows_t & rows, size_t off, int r) {
    pvi v;
#if PANEL_LANES == 16
    v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *) (rows.row(r) + off)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *) (rows.row(r +  4) + off)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *) (rows.row(r +  8) + off)), 2);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *) (rows.row(r + 12) + off)), 3);
#else
    v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *) (rows.row(r) + off)));
    v = _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *) (rows.row(r + 4) + off)), 1);
#endif
    return v;
}

// Sixteen bytes at offset off of all rows, interleaved: lane r of out[j] is the four bytes j of row r.
template <typename rows_t> PANEL_INLINE void pv_load_dwords(const rows_t & rows, size_t off, pvi out[4]) {
    const pvi r0 = pv_load_rows16(rows, off, 0);
    const pvi r1 = pv_load_rows16(rows, off, 1);
    const pvi r2 = pv_load_rows16(rows, off, 2);
    const pvi r3 = pv_load_rows16(rows, off, 3);
    const pvi l0 = PV_OP(unpacklo_epi32)(r0, r1);
    const pvi l1 = PV_OP(unpacklo_epi32)(r2, r3);
    const pvi h0 = PV_OP(unpackhi_epi32)(r0, r1);
    const pvi h1 = PV_OP(unpackhi_epi32)(r2, r3);
    out[0] = PV_OP(unpacklo_epi64)(l0, l1);
    out[1] = PV_OP(unpackhi_epi64)(l0, l1);
    out[2] = PV_OP(unpacklo_epi64)(h0, h1);
    out[3] = PV_OP(unpackhi_epi64)(h0, h1);
}

// The rows of a packed panel: vector i has the four bytes i of all rows.
struct panel_rows_packed {
    const pvi * panel;

    PANEL_INLINE panel_rows_packed make(const char * panel) { return { (const pvi *) panel }; }

    inline void advance(size_t bytes) { panel += bytes/4; }
};

// The same for blocks that end in the middle of four bytes: their last two, an F16, follow after every second block, a pair
// of them in one vector.
struct panel_rows_pairs {
    const pvi * panel;
    bool odd;

    PANEL_INLINE panel_rows_pairs make(const char * panel) { return { (const pvi *) panel, false }; }

    inline void advance(size_t bytes) {
        panel += bytes/4 + odd;
        odd = !odd;
    }
};

// off is a multiple of four
template <typename rows_t> PANEL_INLINE void pv_load_packed(const rows_t & rows, size_t off, pvi out[4]) {
    for (int i = 0; i < 4; i++) {
        out[i] = pv_load(rows.panel + off/4 + i);
    }
}

PANEL_INLINE void pv_load_dwords(const panel_rows_packed & rows, size_t off, pvi out[4]) { pv_load_packed(rows, off, out); }
PANEL_INLINE void pv_load_dwords(const panel_rows_pairs  & rows, size_t off, pvi out[4]) { pv_load_packed(rows, off, out); }

// the F16 that a block of `size` bytes ends with, as floats
template <typename rows_t> PANEL_INLINE pvf pvf_load_last_f16(const rows_t & rows, size_t size) {
    pvi x[4];
    pv_load_dwords(rows, size - 16, x);
    return pvf_from_f16_hi(x[3]);
}

PANEL_INLINE pvf pvf_load_last_f16(const panel_rows_pairs & rows, size_t size) {
    const pvi pair = pv_load(rows.panel + size/4*(rows.odd ? 1 : 2));
    return rows.odd ? pvf_from_f16_hi(pair) : pvf_from_f16_lo(pair);
}

template <typename rows_t> PANEL_INLINE __m128i pv_gather4_32(const rows_t & rows, size_t off, int r) {
    int32_t x[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&x[i], rows.row(r + i) + off, sizeof(x[i]));
    }
    const __m128i a = _mm_insert_epi32(_mm_cvtsi32_si128(x[0]), x[1], 1);
    const __m128i b = _mm_insert_epi32(_mm_cvtsi32_si128(x[2]), x[3], 1);
    return _mm_unpacklo_epi64(a, b);
}

// Four bytes at offset off of every row.
template <typename rows_t> PANEL_INLINE pvi pv_gather32(const rows_t & rows, size_t off) {
    const __m256i lo = _mm256_inserti128_si256(_mm256_castsi128_si256(pv_gather4_32(rows, off, 0)), pv_gather4_32(rows, off, 4), 1);
#if PANEL_LANES == 16
    const __m256i hi = _mm256_inserti128_si256(_mm256_castsi128_si256(pv_gather4_32(rows, off, 8)), pv_gather4_32(rows, off, 12), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
#else
    return lo;
#endif
}

template <typename rows_t> PANEL_INLINE __m128i pv_gather8_16(const rows_t & rows, size_t off, int r) {
    uint16_t x[8];
    for (int i = 0; i < 8; i++) {
        memcpy(&x[i], rows.row(r + i) + off, sizeof(x[i]));
    }
    __m128i v = _mm_cvtsi32_si128(x[0]);
    v = _mm_insert_epi16(v, x[1], 1);
    v = _mm_insert_epi16(v, x[2], 2);
    v = _mm_insert_epi16(v, x[3], 3);
    v = _mm_insert_epi16(v, x[4], 4);
    v = _mm_insert_epi16(v, x[5], 5);
    v = _mm_insert_epi16(v, x[6], 6);
    v = _mm_insert_epi16(v, x[7], 7);
    return v;
}

// Two bytes at offset off of every row, in the low halves of the lanes.
template <typename rows_t> PANEL_INLINE pvi pv_gather16(const rows_t & rows, size_t off) {
    const __m128i lo = pv_gather8_16(rows, off, 0);
#if PANEL_LANES == 16
    const __m128i hi = pv_gather8_16(rows, off, 8);
    return _mm512_cvtepu16_epi32(_mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1));
#else
    return _mm256_cvtepu16_epi32(lo);
#endif
}

// One F16 at offset off of every row, as floats.
template <typename rows_t> PANEL_INLINE pvf pvf_gather_f16(const rows_t & rows, size_t off) {
    const __m128i lo = pv_gather8_16(rows, off, 0);
#if PANEL_LANES == 16
    const __m128i hi = pv_gather8_16(rows, off, 8);
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1));
#else
    return _mm256_cvtph_ps(lo);
#endif
}

#endif  // PANEL_LANES
