#include "panel-kernels.h"

#include "panel-block256-acts.h"
#include "panel-block256-row.h"
#include "panel-block256-unpack.h"

#include <stddef.h>
#include <string.h>

#if defined(PANEL_LANES)

namespace {

void acts_quantize(const float * x, void * acts, int64_t k) {
    acts256 * y = (acts256 *) acts;
    for (int64_t i = 0; i < k/256; i++) {
        acts_quantize256(x + 256*i, y + i);
    }
}

size_t acts_size(int64_t k) {
    return (size_t) (k/256)*sizeof(acts256);
}

// How the tiles treat a type: weights of a run, calls of pv_dot that int16 dots hold, whether the pairs have a scale of their own
// (dmin), whether the weights are signed.
template <int SUB_, int CALLS_, bool MINS_, bool SIGNED_ = false>
struct form {
    static constexpr int  SUB    = SUB_;
    static constexpr int  CALLS  = CALLS_;
    static constexpr bool MINS   = MINS_;
    static constexpr bool SIGNED = SIGNED_;
    static constexpr int  SLOTS  = 64/SUB_;   // runs of a quarter
    static constexpr int  STEPS  = SUB_/4;    // vectors of a run
    static constexpr int  PAIRS  = SIGNED_ ? 0 : 128/SUB_;
};

#if PANEL_VNNI
using form_q2_K   = form<16, 4, true>;
using form_q3_K   = form<16, 4, false>;
using form_q4_K   = form<32, 8, true>;
using form_q5_K   = form<32, 8, true>;
using form_q6_K   = form<16, 4, false>;
using form_iq4_xs = form<32, 8, false>;
#else
using form_q2_K   = form<16, 4, true>;
using form_q3_K   = form<16, 4, false>;
using form_q4_K   = form<32, 8, true>;
using form_q5_K   = form<32, 4, true>;
using form_q6_K   = form<16, 2, false>;
using form_iq4_xs = form<32, 1, false, true>;
#endif

// acc += a . b for pairs of int16
PANEL_INLINE pvi madd16_acc(pvi acc, pvi a, pvi b) {
#if PANEL_VNNI && PANEL_LANES == 16
    return _mm512_dpwssd_epi32(acc, a, b);
#elif PANEL_VNNI && defined(__AVX512VNNI__)
    return _mm256_dpwssd_epi32(acc, a, b);
#elif PANEL_VNNI
    return _mm256_dpwssd_avx_epi32(acc, a, b);
#else
    return pv_keep(pv_add32(acc, pv_madd16(a, b)));
#endif
}

// acc += dots * scale
PANEL_INLINE pvi scaled_acc(pvi acc, pvi dots, pvi scale) {
#if PANEL_VNNI
    return pv_keep(pv_add32(acc, pv_mul32(dots, scale)));
#else
    return pv_keep(pv_add32(acc, pv_madd16(dots, scale)));
#endif
}

// a with the sign of w; neither is -128
PANEL_INLINE pvi sign8(pvi a, pvi w) {
#if PANEL_LANES == 16
    return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
#else
    return _mm256_sign_epi8(a, w);
#endif
}

// What a tile does with each vector of weights.
template <typename F, int COLS, bool STORE>
struct tile_sink {
    panel_block256 & p;
    const char * cols[COLS];
    pvi sums[COLS];
    pvi dots[F::SLOTS][COLS];

    PANEL_INLINE tile_sink make(panel_block256 & p, const char * acts, size_t acts_stride) {
        tile_sink sink = { p, {}, {}, {} };
        PANEL_UNROLL
        for (int c = 0; c < COLS; c++) {
            sink.cols[c] = acts + c*acts_stride;
        }
        return sink;
    }

    PANEL_METHOD void take(int slot, int run, int step, pvi w) {
        if (STORE) {
            pv_store(&p.q[F::STEPS*run + step], w);
        }
        const pvi u = F::SIGNED ? sign8(w, w) : w;
        PANEL_UNROLL
        for (int c = 0; c < COLS; c++) {
            pvi a = pv_bcast32(cols[c] + F::SUB*run + 4*step);
            if (F::SIGNED) {
                a = sign8(a, w);
            }
            dots[slot][c] = step % F::CALLS == 0 ? first_dot(u, a) : pv_dot(dots[slot][c], u, a);
        }
        if ((step + 1) % F::CALLS == 0) {
            const pvi scale = pv_load(&p.scale[run]);
            PANEL_UNROLL
            for (int c = 0; c < COLS; c++) {
                sums[c] = scaled_acc(sums[c], dots[slot][c], scale);
            }
        }
    }

    PANEL_INLINE pvi first_dot(pvi w, pvi a) {
#if PANEL_VNNI
        return pv_dot(pv_zero(), w, a);
#else
        return pv_keep(pv_madd_u8s8(w, a));
#endif
    }
};

template <typename F>
struct store_sink {
    panel_block256 & p;

    PANEL_METHOD void take(int, int run, int step, pvi w) {
        pv_store(&p.q[F::STEPS*run + step], w);
    }
};

// A super-block that is in the panel already.
template <typename F>
struct block_ready {
    PANEL_METHOD void scales(panel_block256 &) const {}

    template <typename sink_t> PANEL_METHOD void quarter(panel_block256 & p, int i, sink_t & sink) const {
        for (int t = 0; t < F::SLOTS; t++) {
            const int run = F::SUB == 16 ? 8*(i/2) + 2*t + i%2 : 2*i + t;
            PANEL_UNROLL
            for (int step = 0; step < F::STEPS; step++) {
                sink.take(0, run, step, pv_load(&p.q[F::STEPS*run + step]));
            }
        }
    }
};

// A super-block that is taken apart on the way, its shuffles beside the products of what came before.
template <typename type, typename rows_t>
struct block_fresh {
    rows_t       rows;
    const char * next;  // memory that is needed soon, as much as one super-block of all rows

    PANEL_METHOD void scales(panel_block256 & p) const {
        type::scales(rows, p);
    }

    template <typename sink_t> PANEL_METHOD void quarter(panel_block256 & p, int i, sink_t & sink) const {
        constexpr int bytes = PANEL_LANES*type::block_size/4;
        for (int o = 0; o < bytes; o += 64) {
            _mm_prefetch(next + i*bytes + o, _MM_HINT_T1);
        }
        type::quarter(rows, p, i, sink);
    }
};

// One super-block and COLS columns, added to acc (of column c: acc + c*PANEL_LANES). The integers are exact, whatever their
// order; the float steps are these for every row and column.
template <typename F, int COLS, bool STORE, typename block_t>
PANEL_INLINE void tile(block_t block, panel_block256 & p, const char * acts, size_t acts_stride, float * acc) {
    auto sink = tile_sink<F, COLS, STORE>::make(p, acts, acts_stride);
    block.scales(p);

    pvi pairs[COLS];
    PANEL_UNROLL
    for (int c = 0; c < COLS; c++) {
        pairs[c] = pv_zero();
    }
    PANEL_UNROLL
    for (int i = 0; i < F::PAIRS; i++) {
        const pvi pair = pv_load(&p.pair[i]);
        PANEL_UNROLL
        for (int c = 0; c < COLS; c++) {
            const size_t off = F::SUB == 16 ? offsetof(acts256, sums16) : offsetof(acts256, sums32);
            pairs[c] = madd16_acc(pairs[c], pair, pv_bcast32(sink.cols[c] + off + 4*i));
        }
    }
    PANEL_UNROLL
    for (int c = 0; c < COLS; c++) {
        sink.sums[c] = F::MINS ? pv_zero() : pairs[c];
    }

    for (int i = 0; i < 4; i++) {
        block.quarter(p, i, sink);
    }

    PANEL_UNROLL
    for (int c = 0; c < COLS; c++) {
        const pvf d = pvf_set1(((const acts256 *) sink.cols[c])->d);
        pvf sum = pvf_mul(pvf_from_i32(sink.sums[c]), p.d);
        if (F::MINS) {
            sum = pvf_fnma(pvf_from_i32(pairs[c]), p.dmin, sum);
        }
        float * a = acc + c*PANEL_LANES;
        pvf_store(a, pvf_fma(sum, d, pvf_load(a)));
    }
}

// Columns of a tile that takes its weights from the panel, and of one that takes them apart itself: the latter keeps the dots of
// two runs or more. 16 registers are too few for those of more than four columns.
constexpr int TILE_MAX  = 8;
constexpr int FRESH_MAX = PANEL_LANES == 16 ? 8 : 4;

template <typename F, bool STORE, int MAX, typename block_t>
void tile_of(int n_cols, const block_t & block, panel_block256 & p, const char * acts, size_t acts_stride, float * acc) {
    switch (n_cols) {
        case 1: tile<F, 1, STORE>(block, p, acts, acts_stride, acc); break;
        case 2: tile<F, 2, STORE>(block, p, acts, acts_stride, acc); break;
        case 3: tile<F, 3, STORE>(block, p, acts, acts_stride, acc); break;
        case 4: tile<F, 4, STORE>(block, p, acts, acts_stride, acc); break;
        case 5: tile<F, MAX < 5 ? MAX : 5, STORE>(block, p, acts, acts_stride, acc); break;
        case 6: tile<F, MAX < 6 ? MAX : 6, STORE>(block, p, acts, acts_stride, acc); break;
        case 7: tile<F, MAX < 7 ? MAX : 7, STORE>(block, p, acts, acts_stride, acc); break;
        case 8: tile<F, MAX < 8 ? MAX : 8, STORE>(block, p, acts, acts_stride, acc); break;
    }
}

// Columns from c on of a super-block in the panel, in tiles of nearly equal size: no narrow one at the end.
template <typename F>
void tiles_ready(int c, int n_cols, panel_block256 & p, const char * acts, size_t acts_stride, float * acc) {
    for (int n_tiles = (n_cols - c + TILE_MAX - 1)/TILE_MAX; n_tiles > 0; n_tiles--) {
        const int n = (n_cols - c + n_tiles - 1)/n_tiles;
        tile_of<F, false, TILE_MAX>(n, block_ready<F>(), p, acts + c*acts_stride, acts_stride, acc + c*PANEL_LANES);
        c += n;
    }
}

constexpr int COLS_MAX = 128;  // columns whose sums are kept while their panel is in the cache

// What a thread needs
struct scratch256 {
    panel_block256 panel;
    float acc[COLS_MAX*PANEL_LANES];
};

// Whole panels
template <typename F, typename block_t>
void mul_full(int64_t k, block_t block, size_t block_size, const char * acts, size_t acts_stride, int n_cols, scratch256 & s) {
    for (int64_t i = 0; i < k/256; i++) {
        if (n_cols <= FRESH_MAX) {
            tile_of<F, false, FRESH_MAX>(n_cols, block, s.panel, acts, acts_stride, s.acc);
        } else {
            tile<F, FRESH_MAX, true>(block, s.panel, acts, acts_stride, s.acc);
            tiles_ready<F>(FRESH_MAX, n_cols, s.panel, acts, acts_stride, s.acc);
        }
        block.rows.advance(block_size);
        block.next += PANEL_LANES*block_size;
        acts += sizeof(acts256);
    }
}

// The rows are read side by side, too short each for the processor to foresee: memory is fetched as it lies, two panels ahead
// (one if they are large).
template <typename type>
block_fresh<type, panel_rows_full> block_of_rows(const char * w, size_t w_stride) {
    const size_t bytes = PANEL_LANES*w_stride;
    return { panel_rows_full::make(w, w_stride, PANEL_LANES), w + (bytes < 24*1024 ? 2 : 1)*bytes };
}

// The last panel of a matrix
template <typename type, typename F>
void mul_part(int64_t k, const char * w, size_t w_stride, int n_rows, const char * acts, size_t acts_stride, int n_cols, scratch256 & s) {
    auto rows = panel_rows_part::make(w, w_stride, n_rows);
    for (int64_t i = 0; i < k/256; i++) {
        store_sink<F> sink = { s.panel };
        type::scales(rows, s.panel);
        for (int j = 0; j < 4; j++) {
            type::quarter(rows, s.panel, j, sink);
        }
        tiles_ready<F>(0, n_cols, s.panel, acts, acts_stride, s.acc);
        rows.advance(type::block_size);
        acts += sizeof(acts256);
    }
}

// f(first column, columns) for as many columns at a time as are kept; their sums begin with zeros and end in dst
template <typename mul_t>
void for_columns(int n_cols, int n_rows, float * dst, int64_t ldd, scratch256 & s, const mul_t & mul) {
    for (int c = 0; c < n_cols; c += COLS_MAX) {
        const int n = n_cols - c < COLS_MAX ? n_cols - c : COLS_MAX;
        memset(s.acc, 0, n*PANEL_VEC_BYTES);
        mul(c, n);
        for (int i = 0; i < n; i++) {
            memcpy(dst + (c + i)*ldd, s.acc + i*PANEL_LANES, n_rows*sizeof(float));
        }
    }
}

template <typename type, typename F>
void mul(int64_t k, const char * w, size_t w_stride, int n_rows, const char * acts, size_t acts_stride, int n_cols, float * dst,
         int64_t ldd, void * scratch) {
    scratch256 & s = *(scratch256 *) scratch;
    for_columns(n_cols, n_rows, dst, ldd, s, [&](int c, int n) {
        if (n_rows == PANEL_LANES) {
            mul_full<F>(k, block_of_rows<type>(w, w_stride), type::block_size, acts + c*acts_stride, acts_stride, n, s);
        } else {
            mul_part<type, F>(k, w, w_stride, n_rows, acts + c*acts_stride, acts_stride, n, s);
        }
    });
}

template <typename type, typename F, typename rows_t>
void mul_packed(int64_t k, const char * panel, const char * acts, size_t acts_stride, int n_cols, float * dst, int64_t ldd, void * scratch) {
    scratch256 & s = *(scratch256 *) scratch;
    for_columns(n_cols, PANEL_LANES, dst, ldd, s, [&](int c, int n) {
        const block_fresh<type, rows_t> block = { rows_t::make(panel), panel + PANEL_PACKED_AHEAD };
        mul_full<F>(k, block, type::block_size, acts + c*acts_stride, acts_stride, n, s);
    });
}

// Packs for panel_rows_pairs: rows are whole pairs of blocks, as their bytes are a multiple of four.
template <typename type>
void pack_pairs(const char * rows, size_t stride, char * out) {
    constexpr size_t size = type::block_size, most = size - 2, pair = 2*size;
    char ordered[PANEL_LANES*pair];
    for (size_t off = 0; off < stride; off += pair) {
        for (int r = 0; r < PANEL_LANES; r++) {
            const char * x = rows + r*stride + off;
            char *       y = ordered + r*pair;
            memcpy(y,                x,               most);
            memcpy(y + most,         x + size,        most);
            memcpy(y + 2*most,       x + most,        2);
            memcpy(y + 2*most + 2,   x + size + most, 2);
        }
        panel_pack(ordered, pair, out + PANEL_LANES*off);
    }
}

void mul_q6_K(int64_t k, const char * w, size_t w_stride, int n_rows, const char * acts, size_t acts_stride, int n_cols, float * dst,
              int64_t ldd, void * scratch) {
    if (n_cols > 1) {
        mul<panel_q6_K, form_q6_K>(k, w, w_stride, n_rows, acts, acts_stride, n_cols, dst, ldd, scratch);
        return;
    }
    float out[PANEL_LANES];
    for (int r = 0; r < n_rows; r += 8) {
        rows_mul_q6_K(k, w + r*w_stride, w_stride, n_rows - r < 8 ? n_rows - r : 8, (const acts256 *) acts, out + r, (row_sums256 *) scratch);
    }
    memcpy(dst, out, n_rows*sizeof(float));
}

size_t scratch_size(int64_t k) {
    const size_t rows = (size_t) (k/256)*sizeof(row_sums256);
    return rows > sizeof(scratch256) ? rows : sizeof(scratch256);
}

template <decltype(panel_family::mul) MUL, decltype(panel_family::mul_packed) MUL_PACKED, decltype(panel_family::pack) PACK>
const panel_family * family_of() {
    static const panel_family family = { acts_size, acts_quantize, scratch_size, MUL, MUL_PACKED, PACK, PANEL_LANES, 256, 256 };
    return &family;
}

template <typename type, typename F>
const panel_family * family_of() {
    return family_of<mul<type, F>, mul_packed<type, F, panel_rows_packed>, panel_pack>();
}

}  // namespace

const panel_family * panel_family_block256(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q2_K:   return family_of<panel_q2_K, form_q2_K>();
        case GGML_TYPE_Q3_K:   return family_of<mul<panel_q3_K, form_q3_K>, nullptr, nullptr>();
        case GGML_TYPE_Q4_K:   return family_of<panel_q4_K, form_q4_K>();
        case GGML_TYPE_Q5_K:   return family_of<panel_q5_K, form_q5_K>();
        case GGML_TYPE_Q6_K:   return family_of<mul_q6_K, mul_packed<panel_q6_K, form_q6_K, panel_rows_pairs>, pack_pairs<panel_q6_K>>();
        case GGML_TYPE_IQ4_XS: return family_of<panel_iq4_xs, form_iq4_xs>();
        default:               return nullptr;
    }
}

#else

const panel_family * panel_family_block256(enum ggml_type) { return nullptr; }

#endif  // PANEL_LANES
