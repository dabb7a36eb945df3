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

PANEL_INLINE void prefetch(const char * p) {
    for (int i = 0; i < 16*PANEL_LANES; i += 64) {
        _mm_prefetch(p + i, _MM_HINT_T1);
    }
}

// next is memory that will be needed soon, as much as these bytes of all rows.
template <typename rows_t> static void make_raw(const rows_t & rows, size_t bytes, const char * next, pvi * raw) {
    size_t off = 0;
    for (; off + 16 <= bytes; off += 16) {
        prefetch(next + PANEL_LANES*off);
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
        prefetch(next + PANEL_LANES*(bytes/16*16));
    }
}

// Formats: how the raw bytes of a block become eight vectors of bytes, quants<j> the values 4j .. 4j+3.
//   offset, has_min  weight = d*(quant - offset), or d*quant + m
//   n_sum            unsigned quants that pv_dot may add up, 0: they are signed and take pv_dot_s8
//   period           blocks after which the layout of the raw panel repeats; odd is the number of the block in it
//   raw_tiles        column tiles up to which unpacking for each of them is cheaper than making a panel of unpacked blocks
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
    static const int offset = 8, n_sum = 8, period = 2, rotate = 16, raw_tiles = PANEL_LANES == 16 ? 3 : 1;
    static const bool has_min = false;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) { load_quants<4, odd>(p, raw, odd ? 4 : 0); }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf &) {
        d = odd ? pvf_from_f16_hi(pv_load(raw + 4)) : pvf_from_f16_lo(pv_load(raw));
    }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return nibbles<j>(p); }
};

struct format_q4_1 {
    using block = block_q4_1;
    static const int offset = 0, n_sum = 8, period = 1, rotate = 0, raw_tiles = PANEL_LANES == 16 ? 3 : 1;
    static const bool has_min = true;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) { load_quants<4, true>(p, raw, 0); }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf & m) { pvf_from_f16_pairs(pv_load(raw), d, m); }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return nibbles<j>(p); }
};

struct format_q5_0 {
    using block = block_q5_0;
    static const int offset = 16, n_sum = 4, period = 2, rotate = 16, raw_tiles = 1;
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
    static const int offset = 0, n_sum = 4, period = 1, rotate = 0, raw_tiles = 1;
    static const bool has_min = true;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) {
        load_quants<4, true>(p, raw, 1);
        p.high = pv_load(raw + 1);
    }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf & m) { pvf_from_f16_pairs(pv_load(raw), d, m); }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) { return add_fifth_bits<j>(nibbles<j>(p), p.high); }
};

// Eight bits are too many for pv_dot without VNNI: there is no offset then.
struct format_q8_0 {
    using block = block_q8_0;
    static const int offset = PANEL_VNNI ? 128 : 0, n_sum = PANEL_VNNI ? 8 : 0, period = 2, rotate = 32, raw_tiles = PANEL_LANES == 16 ? 3 : 2;
    static const bool has_min = false;

    template <bool odd> PANEL_INLINE void load(packed32 & p, const pvi * raw) { load_quants<8, odd>(p, raw, odd ? 8 : 0); }
    template <bool odd> PANEL_INLINE void scales(const pvi * raw, pvf & d, pvf &) {
        d = odd ? pvf_from_f16_hi(pv_load(raw + 8)) : pvf_from_f16_lo(pv_load(raw));
    }
    template <int j> PANEL_INLINE pvi quants(const packed32 & p) {
        return PANEL_VNNI ? pv_xor(p.q[j], pv_set1_8(-128)) : p.q[j];
    }
};

struct format_iq4_nl : format_q4_0 {
    using block = block_iq4_nl;
    static const int offset = format_q8_0::offset, n_sum = format_q8_0::n_sum;

    template <int j> PANEL_INLINE pvi quants(const packed32 & p) {
        alignas(16) static const uint8_t values[16] = {
#define V(x) (uint8_t) ((x) + offset)
            V(-127), V(-104), V(-83), V(-65), V(-49), V(-35), V(-22), V(-10), V(1), V(13), V(25), V(38), V(53), V(69), V(89), V(113)
#undef V
        };
        return pv_shuffle8(pv_bcast128(values), nibbles<j>(p));
    }
};

}  // namespace
