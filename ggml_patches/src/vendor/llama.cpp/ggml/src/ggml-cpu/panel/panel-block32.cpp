// Weights with one scale (and minimum) per 32 values: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL.

#include "panel-kernels.h"
#include "panel-rows.h"

#if defined(PANEL_LANES)

#include "panel-block32-acts.h"
#include "panel-block32-formats.h"

#include <algorithm>

namespace {

// Blocks of a panel (a multiple of 8: the rows of all types then have whole sixteen bytes) and columns of a tile, for which
// the number of vector registers decides.
static const int PANEL_COLS_MAX = PANEL_LANES == 16 ? 8 : 6;
static const int PANEL_BLOCKS = 24;

// Sources of weights for tile(): a raw panel, or a panel of unpacked blocks made from one.

// A packed panel is read from memory, so it is fetched `ahead`; what was interleaved just now (ahead = 0) is near anyway.
template <typename F> struct source_raw {
    const pvi * raw;
    size_t ahead;
    packed32 p;

    template <bool odd> inline void begin() { F::template load<odd>(p, raw); }
    template <int j> inline pvi quants() const { return F::template quants<j>(p); }
    template <bool odd> inline void scales(pvf & d, pvf & m) const { F::template scales<odd>(raw, d, m); }
    inline void next_period() {
        constexpr int bytes = F::period*sizeof(typename F::block)*PANEL_LANES;
        panel_for<(bytes + 63)/64>([&](auto i) PANEL_LAMBDA { _mm_prefetch((const char *) raw + ahead + 64*i, _MM_HINT_T1); });
        raw += bytes/sizeof(pvi);
    }
};

template <typename F> struct panel_block {
    pvi q[8];
    pvf scales[F::has_min ? 2 : 1];  // d, m
};

template <typename F> struct source_panel {
    const panel_block<F> * p;
    const panel_block<F> * now;

    template <bool odd> inline void begin() { now = p + odd; }
    template <int j> inline pvi quants() const { return pv_load(&now->q[j]); }
    template <bool odd> inline void scales(pvf & d, pvf & m) const {
        d = now->scales[0];
        if (F::has_min) {
            m = now->scales[F::has_min];
        }
    }
    inline void next_period() { p += F::period; }
};

template <typename F, bool odd> PANEL_INLINE void unpack_block(source_raw<F> & src, panel_block<F> & out) {
    src.template begin<odd>();
    panel_for<8>([&](auto j) PANEL_LAMBDA { pv_store(&out.q[j], src.template quants<j>()); });
    pvf m;
    src.template scales<odd>(out.scales[0], m);
    if (F::has_min) {
        out.scales[F::has_min] = m;
    }
}

template <typename F> static void make_panel(source_raw<F> src, panel_block<F> * out, int64_t n_blocks) {
    for (int64_t b = 0; b < n_blocks; b += F::period, src.next_period()) {
        unpack_block<F, false>(src, out[b]);
        if (F::period == 2 && b + 1 < n_blocks) {
            unpack_block<F, true>(src, out[b + 1]);
        }
    }
}

// the integer products of one block with C columns
template <typename F, int C, typename source_t>
PANEL_INLINE void block_sums(const source_t & src, const panel_cols & cols, pvi (&sum)[C]) {
    const auto act = [&](int c, int j) PANEL_LAMBDA { return pv_bcast32(cols.col(c) + offsetof(acts32, q) + 4*j); };
    const auto correction = [&](int c) PANEL_LAMBDA { return F::offset != 0 ? pv_bcast32(cols.col(c) + offsetof(acts32, sum)) : pv_zero(); };

    // The dot product of VNNI takes several cycles: a few columns need more than one sum each to keep it busy.
    constexpr int n_chains = !PANEL_VNNI ? 1 : C == 1 ? 4 : C <= 3 ? 2 : 1;
    pvi part[C][n_chains];
    panel_for<C>([&](auto c) PANEL_LAMBDA {
        sum[c] = correction(c);
        panel_for<n_chains>([&](auto chain) PANEL_LAMBDA { part[c][chain] = PANEL_VNNI && chain == 0 ? sum[c] : pv_zero(); });
    });

    // low and high nibbles in turn: each packed vector is done with early
    panel_for<8>([&](auto i) PANEL_LAMBDA {
        constexpr int j = i/2 + 4*(i%2);
        const pvi w = src.template quants<j>();
        panel_for<C>([&](auto c) PANEL_LAMBDA {
            if constexpr (F::n_sum == 0) {
                sum[c] = pv_dot_s8(sum[c], w, act(c, j));
            } else {
                pvi & s = part[c][i%n_chains];
                s = pv_dot(s, w, act(c, j));
            }
        });
        if constexpr (!PANEL_VNNI && F::n_sum != 0) {
            if constexpr ((i + 1)%F::n_sum == 0) {
                panel_for<C>([&](auto c) PANEL_LAMBDA {
                    sum[c] = pv_add32(sum[c], pv_dot_sum(part[c][0]));
                    part[c][0] = pv_zero();
                });
            }
        }
    });

    if constexpr (PANEL_VNNI) {
        panel_for<C>([&](auto c) PANEL_LAMBDA {
            sum[c] = part[c][0];
            panel_for<n_chains - 1>([&](auto chain) PANEL_LAMBDA { sum[c] = pv_add32(sum[c], part[c][chain + 1]); });
        });
    }
}

// acc[c] += weights . column c of one block
template <typename F, bool odd, int C, typename source_t>
PANEL_INLINE void block_mul(source_t & src, const panel_cols & cols, pvf (&acc)[C]) {
    src.template begin<odd>();
    pvi sum[C];
    block_sums<F, C>(src, cols, sum);

    pvf d, m;
    src.template scales<odd>(d, m);
    panel_for<C>([&](auto c) PANEL_LAMBDA {
        const float * a = (const float *) cols.col(c);
        if (F::has_min) {
            acc[c] = pvf_fma(m, pvf_set1(a[1]), acc[c]);
        }
        acc[c] = pvf_fma(pvf_mul(d, pvf_set1(a[0])), pvf_from_i32(sum[c]), acc[c]);
    });
}

// the same for n_blocks
template <typename F, int C, typename source_t>
PANEL_INLINE void tile(source_t src, panel_cols cols, int64_t n_blocks, pvf (&acc)[C]) {
    for (int64_t b = 0; b < n_blocks/F::period; b++, src.next_period()) {
        block_mul<F, false, C>(src, cols, acc);
        cols.advance(sizeof(acts32));
        if (F::period == 2) {
            block_mul<F, true, C>(src, cols, acc);
            cols.advance(sizeof(acts32));
        }
    }
    if (n_blocks%F::period != 0) {
        block_mul<F, false, C>(src, cols, acc);
    }
}

// Results go through dst between the parts of k that fit a panel.
struct panel_out {
    float * dst;
    int64_t ldd;
    int n_rows;
    bool first;

    inline pvf load(int64_t c) const {
        return first ? pvf_zero() : n_rows == PANEL_LANES ? pvf_loadu(dst + c*ldd) : pvf_load_n(dst + c*ldd, n_rows);
    }
    inline void store(int64_t c, pvf v) const {
        if (n_rows == PANEL_LANES) {
            pvf_storeu(dst + c*ldd, v);
        } else {
            pvf_store_n(dst + c*ldd, v, n_rows);
        }
    }
};

template <typename F, int C, typename source_t>
static void tile_to_dst(const source_t & src, const char * acts, size_t acts_stride, int64_t n_blocks, const panel_out & out, int64_t c0) {
    pvf acc[C];
    panel_for<C>([&](auto c) PANEL_LAMBDA { acc[c] = out.load(c0 + c); });
    tile<F, C>(src, panel_cols::make(acts + c0*acts_stride, acts_stride), n_blocks, acc);
    panel_for<C>([&](auto c) PANEL_LAMBDA { out.store(c0 + c, acc[c]); });
}

template <typename F, typename source_t>
static void tile_of(int n, const source_t & src, const char * acts, size_t acts_stride, int64_t n_blocks, const panel_out & out, int64_t c0) {
    switch (n) {
        case 1: return tile_to_dst<F, 1>(src, acts, acts_stride, n_blocks, out, c0);
        case 2: return tile_to_dst<F, 2>(src, acts, acts_stride, n_blocks, out, c0);
        case 3: return tile_to_dst<F, 3>(src, acts, acts_stride, n_blocks, out, c0);
        case 4: return tile_to_dst<F, 4>(src, acts, acts_stride, n_blocks, out, c0);
        case 5: return tile_to_dst<F, 5>(src, acts, acts_stride, n_blocks, out, c0);
        case 6: return tile_to_dst<F, 6>(src, acts, acts_stride, n_blocks, out, c0);
#if PANEL_LANES == 16
        case 7: return tile_to_dst<F, 7>(src, acts, acts_stride, n_blocks, out, c0);
        case 8: return tile_to_dst<F, 8>(src, acts, acts_stride, n_blocks, out, c0);
#endif
    }
}

template <typename F> struct scratch32 {
    pvi raw[PANEL_BLOCKS*sizeof(typename F::block)/4];
    panel_block<F> panel[PANEL_BLOCKS];
};

template <typename F> static size_t scratch_size(int64_t) {
    return sizeof(scratch32<F>);
}

// What a part of k of one panel is multiplied with.
struct columns32 {
    const char * acts;
    size_t stride;
    int n;
};

// Blocks of a raw panel and all columns.
template <typename F>
static void mul_raw(const source_raw<F> & raw, int64_t n_blocks, const columns32 & cols, const panel_out & out, scratch32<F> & s) {
    const int n_tiles = (cols.n + PANEL_COLS_MAX - 1)/PANEL_COLS_MAX;
    const bool unpack = n_tiles > F::raw_tiles;
    if (unpack) {
        make_panel(raw, s.panel, n_blocks);
    }
    for (int t = 0; t < n_tiles; t++) {
        const int c0 = (int) ((int64_t) cols.n*t/n_tiles);
        const int c1 = (int) ((int64_t) cols.n*(t + 1)/n_tiles);
        if (unpack) {
            tile_of<F>(c1 - c0, source_panel<F> { s.panel, nullptr }, cols.acts, cols.stride, n_blocks, out, c0);
        } else {
            tile_of<F>(c1 - c0, raw, cols.acts, cols.stride, n_blocks, out, c0);
        }
    }
}

template <typename F>
static void mul(int64_t k, const char * w, size_t w_stride, int n_rows,
                const char * acts, size_t acts_stride, int n_cols, float * dst, int64_t ldd, void * scratch) {
    scratch32<F> & s = *(scratch32<F> *) scratch;
    const int64_t n_blocks = k/32;
    const size_t panels_ahead = std::max<size_t>(1, PANEL_PREFETCH_BYTES/(PANEL_LANES*w_stride));
    for (int64_t b = 0; b < n_blocks; b += PANEL_BLOCKS) {
        const int64_t nb = std::min<int64_t>(n_blocks - b, PANEL_BLOCKS);
        const size_t bytes = nb*sizeof(typename F::block);
        const char * w_part = w + b*sizeof(typename F::block);
        // a part as large as this one of the next panels: the rows of a matrix follow each other
        const char * next = w + panels_ahead*PANEL_LANES*w_stride + PANEL_LANES*(w_part - w);
        if (n_rows == PANEL_LANES) {
            make_raw(panel_rows_full::make(w_part, w_stride, n_rows), bytes, next, s.raw);
        } else {
            make_raw(panel_rows_part::make(w_part, w_stride, n_rows), bytes, next, s.raw);
        }
        mul_raw<F>(source_raw<F> { s.raw, 0, {} }, nb, { acts + b*sizeof(acts32), acts_stride, n_cols }, { dst, ldd, n_rows, b == 0 }, s);
    }
}

template <typename F>
static void mul_packed(int64_t k, const char * panel, const char * acts, size_t acts_stride, int n_cols, float * dst, int64_t ldd, void * scratch) {
    scratch32<F> & s = *(scratch32<F> *) scratch;
    const int64_t n_blocks = k/32;
    // a tile reads its weights once: only what several of them read must fit the L1 cache
    const int64_t part = n_cols <= PANEL_COLS_MAX ? n_blocks : PANEL_BLOCKS;
    for (int64_t b = 0; b < n_blocks; b += part) {
        const int64_t nb = std::min(n_blocks - b, part);
        const pvi * raw = (const pvi *) panel + b*sizeof(typename F::block)/4;
        mul_raw<F>(source_raw<F> { raw, PANEL_PACKED_AHEAD, {} }, nb, { acts + b*sizeof(acts32), acts_stride, n_cols }, { dst, ldd, PANEL_LANES, b == 0 }, s);
    }
}

template <typename F> static const panel_family * family_of() {
    static const panel_family family = {
        acts_size, acts_quantize<F::offset, F::rotate>, scratch_size<F>, mul<F>, mul_packed<F>, panel_pack, PANEL_LANES, 32, ACTS_SPLIT
    };
    return &family;
}

}  // namespace

const panel_family * panel_family_block32(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:   return family_of<format_q4_0>();
        case GGML_TYPE_Q4_1:   return family_of<format_q4_1>();
        case GGML_TYPE_Q5_0:   return family_of<format_q5_0>();
        case GGML_TYPE_Q5_1:   return family_of<format_q5_1>();
        case GGML_TYPE_Q8_0:   return family_of<format_q8_0>();
        case GGML_TYPE_IQ4_NL: return family_of<format_iq4_nl>();
        default:               return nullptr;
    }
}

#else

const panel_family * panel_family_block32(enum ggml_type) { return nullptr; }

#endif
