#pragma once

// The super-blocks of 256 weights (K-quants and IQ4_XS) of a panel of rows, taken apart.
//
// A type offers
//     scales (rows, p):          all that a super-block has besides its quants, into p
//     quarter(rows, p, i, sink): 64 weights, vector by vector, as sink.take(slot, run, step, vector)
// A run is a row of weights with one scale, 16 or 32 long; step counts its vectors, four weights per lane. A quarter has two or
// four whole runs, the slots: with runs of 32 they follow each other, with runs of 16 they are every second one of a half.

#include "panel-rows.h"

#if defined(PANEL_LANES)

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

#include <stddef.h>

#if defined(_MSC_VER)
#    define PANEL_METHOD __forceinline
#else
#    define PANEL_METHOD inline __attribute__((always_inline))
#endif

// Loops over the vectors of a tile must vanish for its sums to live in registers.
#if defined(__clang__)
#    define PANEL_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#    define PANEL_UNROLL _Pragma("GCC unroll 8")
#else
#    define PANEL_UNROLL
#endif

// One super-block of PANEL_LANES rows. A row's part of the product with activations a is
//     d * (sum over runs of scale * (q . a))  +  what the pairs add.
// The pairs are int16 factors for the sums of a over two neighbouring runs: mins, which have a scale of their own (weights
// d*scale*q - dmin*min), or -scale times the offset that makes q unsigned.
struct panel_block256 {
    pvi q[64];      // the vectors of all runs, when a tile leaves them for others
    pvi high[8];    // Q5_K: fifth bits that are still to come
    pvi scale[16];  // in the form that panel_scale_u8 and panel_scale_s8 make
    pvi pair[8];
    pvf d;
    pvf dmin;
};

// Moves bytes within every 32-bit lane; -1 makes a zero byte.
template <int B0, int B1, int B2, int B3> PANEL_INLINE pvi panel_shuffle_lanes(pvi a) {
    alignas(16) static const int8_t index[16] = {
        B0, B1, B2, B3,
        B0 < 0 ? -1 : B0 +  4, B1 < 0 ? -1 : B1 +  4, B2 < 0 ? -1 : B2 +  4, B3 < 0 ? -1 : B3 +  4,
        B0 < 0 ? -1 : B0 +  8, B1 < 0 ? -1 : B1 +  8, B2 < 0 ? -1 : B2 +  8, B3 < 0 ? -1 : B3 +  8,
        B0 < 0 ? -1 : B0 + 12, B1 < 0 ? -1 : B1 + 12, B2 < 0 ? -1 : B2 + 12, B3 < 0 ? -1 : B3 + 12,
    };
    return pv_shuffle8(a, pv_bcast128(index));
}

template <int N> PANEL_INLINE pvi panel_sra16(pvi a) { return PV_OP(srai_epi16)(a, N); }

PANEL_INLINE pvi panel_srl16(pvi a, int n) { return PV_OP(srl_epi16)(a, _mm_cvtsi32_si128(n)); }

// Byte N of the lanes as a factor for the dots of a run: one int32 per lane, or the same int16 twice for pairs of int16 dots.
template <int N> PANEL_INLINE pvi panel_scale_u8(pvi a) {
    return panel_shuffle_lanes<N, -1, PANEL_VNNI ? -1 : N, -1>(a);
}

template <int N> PANEL_INLINE pvi panel_scale_s8(pvi a) {
#if PANEL_VNNI
    return pv_sra32<24>(pv_sll32<24 - 8*N>(a));
#else
    return panel_sra16<8>(panel_shuffle_lanes<-1, N, -1, N>(a));
#endif
}

// Bytes N and N + 1 as a pair of int16.
template <int N> PANEL_INLINE pvi panel_pair_u8(pvi a) {
    return panel_shuffle_lanes<N, -1, N + 1, -1>(a);
}

// The same, signed and times -2^SHIFT.
template <int N, int SHIFT> PANEL_INLINE pvi panel_pair_s8(pvi a) {
    const pvi high = panel_shuffle_lanes<-1, N, -1, N + 1>(a);
    return PV_OP(sub_epi16)(pv_zero(), panel_sra16<8 - SHIFT>(high));
}

PANEL_INLINE void panel_scales4_u8(pvi * scale, pvi a) {
    pv_store(&scale[0], panel_scale_u8<0>(a));
    pv_store(&scale[1], panel_scale_u8<1>(a));
    pv_store(&scale[2], panel_scale_u8<2>(a));
    pv_store(&scale[3], panel_scale_u8<3>(a));
}

PANEL_INLINE void panel_scales4_s8(pvi * scale, pvi a) {
    pv_store(&scale[0], panel_scale_s8<0>(a));
    pv_store(&scale[1], panel_scale_s8<1>(a));
    pv_store(&scale[2], panel_scale_s8<2>(a));
    pv_store(&scale[3], panel_scale_s8<3>(a));
}

PANEL_INLINE void panel_pairs4_u8(pvi * pair, pvi a) {
    pv_store(&pair[0], panel_pair_u8<0>(a));
    pv_store(&pair[1], panel_pair_u8<2>(a));
}

template <int SHIFT> PANEL_INLINE void panel_pairs4_s8(pvi * pair, pvi a) {
    pv_store(&pair[0], panel_pair_s8<0, SHIFT>(a));
    pv_store(&pair[1], panel_pair_s8<2, SHIFT>(a));
}

// d, dmin and the 6-bit scales and mins that Q4_K and Q5_K begin with.
template <typename rows_t> PANEL_INLINE void panel_scales_k45(const rows_t & rows, panel_block256 & p) {
    const pvi m6 = pv_set1_8(0x3f);
    const pvi m4 = pv_set1_8(0x0f);
    const pvi m2 = pv_set1_8(0x30);

    pvi h[4];  // d dmin, then the twelve bytes
    pv_load_dwords(rows, 0, h);

    panel_scales4_u8(p.scale,     pv_and(h[1], m6));
    panel_scales4_u8(p.scale + 4, pv_or(pv_and(h[3], m4), pv_and(pv_srl16<2>(h[1]), m2)));
    panel_pairs4_u8 (p.pair,      pv_and(h[2], m6));
    panel_pairs4_u8 (p.pair  + 2, pv_or(pv_nib_hi(h[3]), pv_and(pv_srl16<2>(h[2]), m2)));

    p.d    = pvf_from_f16_lo(h[0]);
    p.dmin = pvf_from_f16_hi(h[0]);
}

struct panel_q4_K {
    static constexpr size_t block_size = sizeof(block_q4_K);

    template <typename rows_t> PANEL_INLINE void scales(const rows_t & rows, panel_block256 & p) {
        panel_scales_k45(rows, p);
    }

    template <typename rows_t, typename sink_t>
    PANEL_INLINE void quarter(const rows_t & rows, panel_block256 &, int i, sink_t & sink) {
        PANEL_UNROLL
        for (int c = 0; c < 2; c++) {
            pvi x[4];
            pv_load_dwords(rows, offsetof(block_q4_K, qs) + 32*i + 16*c, x);
            PANEL_UNROLL
            for (int j = 0; j < 4; j++) {
                sink.take(0, 2*i,     4*c + j, pv_nib_lo(x[j]));
                sink.take(1, 2*i + 1, 4*c + j, pv_nib_hi(x[j]));
            }
        }
    }
};

struct panel_q5_K {
    static constexpr size_t block_size = sizeof(block_q5_K);

    template <typename rows_t> PANEL_INLINE void scales(const rows_t & rows, panel_block256 & p) {
        panel_scales_k45(rows, p);
        PANEL_UNROLL
        for (int c = 0; c < 2; c++) {
            pvi h[4];
            pv_load_dwords(rows, offsetof(block_q5_K, qh) + 16*c, h);
            PANEL_UNROLL
            for (int j = 0; j < 4; j++) {
                pv_store(&p.high[4*c + j], h[j]);
            }
        }
    }

    template <typename rows_t, typename sink_t>
    PANEL_INLINE void quarter(const rows_t & rows, panel_block256 & p, int i, sink_t & sink) {
        const pvi m1 = pv_set1_8(0x10);
        PANEL_UNROLL
        for (int c = 0; c < 2; c++) {
            pvi x[4];
            pv_load_dwords(rows, offsetof(block_q5_K, qs) + 32*i + 16*c, x);
            PANEL_UNROLL
            for (int j = 0; j < 4; j++) {
                const pvi h = pv_load(&p.high[4*c + j]);  // bits 0 and 1 of its bytes are those of this quarter
                pv_store(&p.high[4*c + j], pv_srl16<2>(h));
                sink.take(0, 2*i,     4*c + j, pv_or(pv_nib_lo(x[j]), pv_and(pv_sll16<4>(h), m1)));
                sink.take(1, 2*i + 1, 4*c + j, pv_or(pv_nib_hi(x[j]), pv_and(pv_sll16<3>(h), m1)));
            }
        }
    }
};

struct panel_q6_K {
    static constexpr size_t block_size = sizeof(block_q6_K);

    template <typename rows_t> PANEL_INLINE void scales(const rows_t & rows, panel_block256 & p) {
        pvi x[4];
        pv_load_dwords(rows, offsetof(block_q6_K, scales), x);
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            panel_scales4_s8  (p.scale + 4*j, x[j]);
            panel_pairs4_s8<5>(p.pair  + 2*j, x[j]);
        }
        p.d = pvf_load_last_f16(rows, sizeof(block_q6_K));
    }

    template <typename rows_t, typename sink_t>
    PANEL_INLINE void quarter(const rows_t & rows, panel_block256 &, int i, sink_t & sink) {
        const size_t off_l = offsetof(block_q6_K, ql) + 64*(i/2) + 16*(i%2);
        const size_t off_h = offsetof(block_q6_K, qh) + 32*(i/2) + 16*(i%2);
        const int    s     = 8*(i/2) + i%2;
        const pvi m2 = pv_set1_8(0x30);
        pvi l[4], h[4];
        pv_load_dwords(rows, off_h, h);
        pv_load_dwords(rows, off_l, l);
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            sink.take(0, s,     j, pv_or(pv_nib_lo(l[j]), pv_and(pv_sll16<4>(h[j]), m2)));
            sink.take(2, s + 4, j, pv_or(pv_nib_hi(l[j]), pv_and(h[j], m2)));
        }
        pv_load_dwords(rows, off_l + 32, l);
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            sink.take(1, s + 2, j, pv_or(pv_nib_lo(l[j]), pv_and(pv_sll16<2>(h[j]), m2)));
            sink.take(3, s + 6, j, pv_or(pv_nib_hi(l[j]), pv_and(pv_srl16<2>(h[j]), m2)));
        }
    }
};

struct panel_q3_K {
    static constexpr size_t block_size = sizeof(block_q3_K);

    template <typename rows_t> PANEL_INLINE void scales(const rows_t & rows, panel_block256 & p) {
        const pvi m4 = pv_set1_8(0x0f);
        const pvi m2 = pv_set1_8(0x30);

        pvi x[4];  // two bytes of quants, the twelve bytes, d
        pv_load_dwords(rows, sizeof(block_q3_K) - 16, x);
        const pvi a = pv_or(pv_srl32<16>(x[0]), pv_sll32<16>(x[1]));
        const pvi b = pv_or(pv_srl32<16>(x[1]), pv_sll32<16>(x[2]));
        const pvi c = pv_or(pv_srl32<16>(x[2]), pv_sll32<16>(x[3]));

        const pvi s[4] = {
            pv_or(pv_and(a, m4), pv_and(pv_sll16<4>(c), m2)),
            pv_or(pv_and(b, m4), pv_and(pv_sll16<2>(c), m2)),
            pv_or(pv_nib_hi(a),  pv_and(c, m2)),
            pv_or(pv_nib_hi(b),  pv_and(pv_srl16<2>(c), m2)),
        };
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            const pvi sc = pv_sub8(s[j], pv_set1_8(32));
            panel_scales4_s8  (p.scale + 4*j, sc);
            panel_pairs4_s8<2>(p.pair  + 2*j, sc);
        }
        p.d = pvf_from_f16_hi(x[3]);
    }

    template <typename rows_t, typename sink_t>
    PANEL_INLINE void quarter(const rows_t & rows, panel_block256 &, int i, sink_t & sink) {
        const int s  = 8*(i/2) + i%2;
        const pvi m2 = pv_set1_8(3);
        const pvi m1 = pv_set1_8(4);
        pvi x[4], h[4];
        pv_load_dwords(rows, offsetof(block_q3_K, qs)    + 32*(i/2) + 16*(i%2), x);
        pv_load_dwords(rows, offsetof(block_q3_K, hmask) +            16*(i%2), h);
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            h[j] = panel_srl16(h[j], 4*(i/2));
            sink.take(0, s,     j, pv_or(pv_and(x[j],            m2), pv_and(pv_sll16<2>(h[j]), m1)));
            sink.take(1, s + 2, j, pv_or(pv_and(pv_srl16<2>(x[j]), m2), pv_and(pv_sll16<1>(h[j]), m1)));
            sink.take(2, s + 4, j, pv_or(pv_and(pv_srl16<4>(x[j]), m2), pv_and(h[j],              m1)));
            sink.take(3, s + 6, j, pv_or(pv_and(pv_srl16<6>(x[j]), m2), pv_and(pv_srl16<1>(h[j]), m1)));
        }
    }
};

struct panel_q2_K {
    static constexpr size_t block_size = sizeof(block_q2_K);

    template <typename rows_t> PANEL_INLINE void scales(const rows_t & rows, panel_block256 & p) {
        pvi x[4];
        pv_load_dwords(rows, offsetof(block_q2_K, scales), x);
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            panel_scales4_u8(p.scale + 4*j, pv_nib_lo(x[j]));
            panel_pairs4_u8 (p.pair  + 2*j, pv_nib_hi(x[j]));
        }
        pv_load_dwords(rows, sizeof(block_q2_K) - 16, x);  // d and dmin are the last four
        p.d    = pvf_from_f16_lo(x[3]);
        p.dmin = pvf_from_f16_hi(x[3]);
    }

    template <typename rows_t, typename sink_t>
    PANEL_INLINE void quarter(const rows_t & rows, panel_block256 &, int i, sink_t & sink) {
        const int s = 8*(i/2) + i%2;
        const pvi m = pv_set1_8(3);
        pvi x[4];
        pv_load_dwords(rows, offsetof(block_q2_K, qs) + 32*(i/2) + 16*(i%2), x);
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            sink.take(0, s,     j, pv_and(x[j], m));
            sink.take(1, s + 2, j, pv_and(pv_srl16<2>(x[j]), m));
            sink.take(2, s + 4, j, pv_and(pv_srl16<4>(x[j]), m));
            sink.take(3, s + 6, j, pv_and(pv_srl16<6>(x[j]), m));
        }
    }
};

// The weights are table values within -127..113. With VNNI they are used plus 128; int16 sums have no room for that, there they
// stay signed and need no pairs.
struct panel_iq4_xs {
    static constexpr size_t block_size = sizeof(block_iq4_xs);

    template <typename rows_t> PANEL_INLINE void scales(const rows_t & rows, panel_block256 & p) {
        pvi x[4];  // d and the high bits, the low nibbles
        pv_load_dwords(rows, 0, x);
        const pvi l0 = panel_shuffle_lanes<0, 0, 1, 1>(x[1]);
        const pvi l1 = panel_shuffle_lanes<2, 2, 3, 3>(x[1]);
        const pvi h0 = panel_shuffle_lanes<2, 2, 2, 2>(x[0]);
        const pvi h1 = panel_shuffle_lanes<3, 3, 3, 3>(x[0]);
        const pvi s0 = pv_sub8(pv_or(low4(l0), high2(h0)), pv_set1_8(32));
        const pvi s1 = pv_sub8(pv_or(low4(l1), high2(h1)), pv_set1_8(32));
        panel_scales4_s8(p.scale,     s0);
        panel_scales4_s8(p.scale + 4, s1);
#if PANEL_VNNI
        panel_pairs4_s8<7>(p.pair,     s0);
        panel_pairs4_s8<7>(p.pair + 2, s1);
#endif
        p.d = pvf_from_f16_lo(x[0]);
    }

    // low nibbles of even bytes, high nibbles of odd bytes
    PANEL_INLINE pvi low4(pvi a) {
        return pv_or(pv_and(a, pv_set1_16(0x000f)), pv_and(pv_srl16<4>(a), pv_set1_16(0x0f00)));
    }

    // bits 2N and 2N + 1 of byte N, as bits 4 and 5
    PANEL_INLINE pvi high2(pvi a) {
        const pvi b01 = pv_or(pv_and(pv_sll16<4>(a), pv_set1_32(0x30)),     pv_and(pv_sll16<2>(a), pv_set1_32(0x3000)));
        const pvi b23 = pv_or(pv_and(a,              pv_set1_32(0x300000)), pv_and(pv_srl16<2>(a), pv_set1_32(0x30000000)));
        return pv_or(b01, b23);
    }

    template <typename rows_t, typename sink_t>
    PANEL_INLINE void quarter(const rows_t & rows, panel_block256 &, int i, sink_t & sink) {
        static const int8_t values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
        pvi table = pv_bcast128(values);
        if (PANEL_VNNI) {
            table = pv_xor(table, pv_set1_8(-128));
        }
        PANEL_UNROLL
        for (int t = 0; t < 2; t++) {
            pvi x[4];
            pv_load_dwords(rows, offsetof(block_iq4_xs, qs) + 32*i + 16*t, x);
            PANEL_UNROLL
            for (int j = 0; j < 4; j++) {
                sink.take(t, 2*i + t, j, pv_shuffle8(table, pv_nib_lo(x[j])));
            }
            PANEL_UNROLL
            for (int j = 0; j < 4; j++) {
                sink.take(t, 2*i + t, 4 + j, pv_shuffle8(table, pv_nib_hi(x[j])));
            }
        }
    }
};

#endif  // PANEL_LANES
