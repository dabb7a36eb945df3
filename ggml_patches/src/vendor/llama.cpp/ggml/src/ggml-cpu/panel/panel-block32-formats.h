#pragma once

// How the weights of panel-block32.cpp lie in memory and become vectors of quants.

#include "panel-simd.h"

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

namespace {

// Raw panels: the bytes of some blocks of all rows as they are, lane r of vector i holding the four bytes 4i of row r.
//
// Two blocks of a format with a size of 2 modulo 4 bytes share one vector: the end of the even block is in its low halves,
// the scale of the odd block in the high ones. The first vector of the even block has its scale and its first two bytes of
// quants likewise. These four bytes of quants make a vector together, the last two and the first two of the even block,
// so that its values come in a rotated order, and the activations are put in the same order.

// next is memory that will be needed soon, as much as these bytes of all rows.
template <typename rows_t> static void make_raw(const rows_t & rows, size_t bytes, const char * next, pvi * raw) {
    size_t off = 0;
    for (; off + 16 <= bytes; off += 16) {
        for (int i = 0; i < 16*PANEL_LANES; i += 64) {
            _mm_prefetch(next + PANEL_LANES*off + i, _MM_HINT_T1);
        }
        pv_load_dwords(rows, off, raw + off/4);
    }
    if (off < bytes) {
        // the last sixteen bytes again, up to a whole vector
        off = bytes/4*4 - 16;
        pvi last[4];
        pv_load_dwords(rows, off, last);
        panel_for<4>([&](auto i) PANEL_LAMBDA { pv_store(raw + off/4 + i, last[i]); });
        if (bytes%4 != 0) {
            pv_store(raw + bytes/4, pv_gather16(rows, bytes - 2));
        }
    }
}

// Formats: how the raw bytes of a block become eight vectors of unsigned bytes, quants<j> the values 4j .. 4j+3.
//   offset, has_min  weight = d*(quant - offset), or d*quant + m
//   n_sum            quants that pv_dot may add up
//   n_planes         2: too large for pv_dot, quants<j> are the high and quants<j + 8> the low nibbles
//   period           blocks after which the layout of the raw panel repeats; odd is the number of the block in it
//   rotate           values of even blocks that are rotated by two places together, 0: none

struct packed32 {
    pvi q[8];
    pvi high;
};

// n vectors of quants that begin in vector i, with a block of an even number in the middle of it
template <int n, bool odd> PANEL_INLINE void load_quants(packed32 & p, const pvi * raw, int i) {
    if (odd) {
        panel_for<n>([&](auto j) PANEL_LAMBDA { p.q[j] = pv_load(raw + i + 1 + j); });
    } else {
        p.q[0] = pv_halves(pv_load(raw + i), pv_load(raw + i + n));
        panel_for<n - 1>([&](auto j) PANEL_LAMBDA { p.q[j + 1] = pv_load(raw + i + 1 + j); });
    }
}

template <int j> PANEL_INLINE pvi nibbles(const packed32 & p) {
    return j < 4 ? pv_nib_lo(p.q[j%4]) : pv_nib_hi(p.q[j%4]);
}

// Puts bits 4j .. 4j+3 of each lane in front of four nibbles.
template <int j> PANEL_INLINE pvi add_fifth_bits(pvi nib, pvi high) {
    alignas(16) static const int8_t spread[16] = {
        j/2, j/2, j/2, j/2, 4 + j/2, 4 + j/2, 4 + j/2, 4 + j/2, 8 + j/2, 8 + j/2, 8 + j/2, 8 + j/2, 12 + j/2, 12 + j/2, 12 + j/2, 12 + j/2 };
    const pvi bytes = pv_shuffle8(high, pv_bcast128(spread));
#if PANEL_LANES == 16
    const pvi select = pv_set1_32(j%2 == 0 ? 0x08040201 : 0x80402010);
    return _mm512_mask_add_epi8(nib, _mm512_test_epi8_mask(bytes, select), nib, pv_set1_8(16));
#else
    const pvi bits = pv_and(j%2 == 0 ? pv_sll32<4>(bytes) : bytes, pv_set1_32((int32_t) 0x80402010));
    return pv_or(nib, pv_min_u8(bits, pv_set1_8(16)));
#endif
}

struct format_q4_0 {
    using block = block_q4_0;
    static const int offset = 8, n_sum = 8, n_planes = 1, period = 2, rotate = 16;
    static const bool has_min = false;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) { load_quants<4, odd>(p, raw, odd ? 4 : 0); }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf &) {
        d = odd ? pvf_from_f16_hi(pv_load(raw + 4)) : pvf_from_f16_lo(pv_load(raw));
    }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return nibbles<j>(p); }
};

struct format_q4_1 {
    using block = block_q4_1;
    static const int offset = 0, n_sum = 8, n_planes = 1, period = 1, rotate = 0;
    static const bool has_min = true;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) { load_quants<4, true>(p, raw, 0); }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf & m) { pvf_from_f16_pairs(pv_load(raw), d, m); }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return nibbles<j>(p); }
};

struct format_q5_0 {
    using block = block_q5_0;
    static const int offset = 16, n_sum = 4, n_planes = 1, period = 2, rotate = 16;
    static const bool has_min = false;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) {
        load_quants<4, odd>(p, raw, odd ? 6 : 1);
        if (odd) {
            p.high = pv_load(raw + 6);
        } else {
            // in the order of the rotated quants, within each half
            const pvi swapped = pv_halves(pv_load(raw), pv_load(raw + 1));
            const pvi high = pv_or(pv_sll32<16>(swapped), pv_srl32<16>(swapped));
            p.high = pv_or(pv_sll16<2>(high), pv_srl16<14>(high));
        }
    }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf &) {
        d = odd ? pvf_from_f16_hi(pv_load(raw + 5)) : pvf_from_f16_lo(pv_load(raw));
    }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return add_fifth_bits<j>(nibbles<j>(p), p.high); }
};

struct format_q5_1 {
    using block = block_q5_1;
    static const int offset = 0, n_sum = 4, n_planes = 1, period = 1, rotate = 0;
    static const bool has_min = true;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) {
        load_quants<4, true>(p, raw, 1);
        p.high = pv_load(raw + 1);
    }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf & m) { pvf_from_f16_pairs(pv_load(raw), d, m); }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return add_fifth_bits<j>(nibbles<j>(p), p.high); }
};

struct format_q8_0 {
    using block = block_q8_0;
    static const int offset = 128, n_sum = 8, n_planes = PANEL_VNNI ? 1 : 2, period = 2, rotate = 32;
    static const bool has_min = false;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) { load_quants<8, odd>(p, raw, odd ? 8 : 0); }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf &) {
        d = odd ? pvf_from_f16_hi(pv_load(raw + 8)) : pvf_from_f16_lo(pv_load(raw));
    }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) {
        const pvi u = pv_xor(p.q[j%8], pv_set1_8(-128));
        return n_planes == 1 ? u : j < 8 ? pv_nib_hi(u) : pv_nib_lo(u);
    }
};

// the table of IQ4_NL plus 128, and the nibbles of these
#define IQ4_NL_VALUES(f) { \
    f(1), f(24), f(45), f(63), f(79), f(93), f(106), f(118), f(129), f(141), f(153), f(166), f(181), f(197), f(217), f(241) }
#define IQ4_NL_WHOLE(x) (uint8_t) (x)
#define IQ4_NL_HIGH(x)  (uint8_t) ((x) >> 4)
#define IQ4_NL_LOW(x)   (uint8_t) ((x) & 15)

alignas(16) static const uint8_t iq4_nl_tables[3][16] = {
    IQ4_NL_VALUES(IQ4_NL_WHOLE), IQ4_NL_VALUES(IQ4_NL_HIGH), IQ4_NL_VALUES(IQ4_NL_LOW)
};

struct format_iq4_nl : format_q4_0 {
    using block = block_iq4_nl;
    static const int offset = 128, n_planes = PANEL_VNNI ? 1 : 2;

    template <int j> PANEL_INLINE pvi quants(const packed32 & p) {
        return pv_shuffle8(pv_bcast128(iq4_nl_tables[n_planes == 1 ? 0 : 1 + j/8]), nibbles<j%8>(p));
    }
};

}  // namespace
