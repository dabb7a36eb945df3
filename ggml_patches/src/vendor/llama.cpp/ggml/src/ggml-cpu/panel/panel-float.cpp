// Weights in F16 and BF16. Activations stay in F32, so nothing but the sums is rounded.
//
// There is nothing to unpack here, so vectors run along the rows. A sum of a row and a column is made in the lanes of one
// vector, whatever the tile is.

#include "panel-kernels.h"
#include "panel-simd.h"

#if defined(PANEL_LANES)

namespace {

// rows and columns of a tile, for which the number of vector registers decides
const int TILE_ROWS = PANEL_LANES == 16 ? 8 : 4;
const int TILE_COLS = 3;

// bytes that are fetched ahead at the least
const size_t AHEAD_MIN = 8*1024;

size_t acts_size(int64_t k) {
    return GGML_PAD(k*sizeof(float), 64);
}

void acts_quantize(const float * x, void * acts, int64_t k) {
    memcpy(acts, x, k*sizeof(float));
    memset((char *) acts + k*sizeof(float), 0, acts_size(k) - k*sizeof(float));
}

size_t scratch_size(int64_t) {
    return 0;
}

#if PANEL_LANES == 16
using halves = __m256i;
PANEL_INLINE halves load_halves(const void * p) { return _mm256_loadu_si256((const __m256i *) p); }
#else
using halves = __m128i;
PANEL_INLINE halves load_halves(const void * p) { return _mm_loadu_si128((const __m128i *) p); }
#endif

// the first n of a vector, then zeros
PANEL_INLINE halves load_halves_n(const void * p, int n) {
    uint16_t x[PANEL_LANES] = { 0 };
    memcpy(x, p, n*sizeof(x[0]));
    return load_halves(x);
}

struct format_f16 {
    PANEL_INLINE pvf to_float(halves h) { return PV_OP(cvtph_ps)(h); }
};

struct format_bf16 {
    PANEL_INLINE pvf to_float(halves h) { return pvf_from_bits(pv_sll32<16>(PV_OP(cvtepu16_epi32)(h))); }
};

PANEL_INLINE float sum_of(pvf v) {
#if PANEL_LANES == 16
    const __m256 w = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
    const __m256 w = v;
#endif
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

// Adds the products of one vector of each row and column.
template <int R, int C, typename load_row_t>
PANEL_INLINE void multiply(pvf (&acc)[R][C], const load_row_t & load_row, const panel_cols & cols) {
    pvf a[C];
    panel_for<C>([&](auto c) PANEL_LAMBDA { a[c] = pvf_load((const float *) cols.col(c)); });
    panel_for<R>([&](auto r) PANEL_LAMBDA {
        const pvf w = load_row(r);
        panel_for<C>([&](auto c) PANEL_LAMBDA { acc[r][c] = pvf_fma(w, a[c], acc[r][c]); });
    });
}

template <typename F, int R, int C>
void tile(int64_t k, const char * w, size_t w_stride, const char * acts, size_t acts_stride, float * dst, int64_t ldd) {
    // eight pointers a stride apart serve for rows as well
    panel_cols rows = panel_cols::make(w, w_stride);
    panel_cols cols = panel_cols::make(acts, acts_stride);
    pvf acc[R][C];
    panel_for<R*C>([&](auto i) PANEL_LAMBDA { acc[i/C][i%C] = pvf_zero(); });

    // Side by side, the rows are too many and too short for the processor to foresee: the next ones are fetched as they lie.
    const char * next = w + R*w_stride*(R*w_stride < AHEAD_MIN ? 2 : 1);
    for (int64_t i = 0; i < k/PANEL_LANES; i++) {
        panel_for<(2*R*PANEL_LANES + 63)/64>([&](auto j) PANEL_LAMBDA { _mm_prefetch(next + 64*j, _MM_HINT_T1); });
        next += 2*R*PANEL_LANES;
        multiply<R, C>(acc, [&](auto r) PANEL_LAMBDA { return F::to_float(load_halves(rows.col(r))); }, cols);
        rows.advance(2*PANEL_LANES);
        cols.advance(4*PANEL_LANES);
    }
    if (const int rest = k % PANEL_LANES) {
        multiply<R, C>(acc, [&](auto r) PANEL_LAMBDA { return F::to_float(load_halves_n(rows.col(r), rest)); }, cols);
    }
    panel_for<R*C>([&](auto i) PANEL_LAMBDA { dst[(i%C)*ldd + i/C] = sum_of(acc[i/C][i%C]); });
}

template <typename F, int R>
void mul_rows(int64_t k, const char * w, size_t w_stride, const char * acts, size_t acts_stride, int n_cols, float * dst, int64_t ldd) {
    const int n_tiles = (n_cols + TILE_COLS - 1)/TILE_COLS;
    for (int t = 0; t < n_tiles; t++) {
        const int c0 = (int) ((int64_t) n_cols*t/n_tiles);
        const int c1 = (int) ((int64_t) n_cols*(t + 1)/n_tiles);
        switch (c1 - c0) {
            case 1: tile<F, R, 1>(k, w, w_stride, acts + c0*acts_stride, acts_stride, dst + c0*ldd, ldd); break;
            case 2: tile<F, R, 2>(k, w, w_stride, acts + c0*acts_stride, acts_stride, dst + c0*ldd, ldd); break;
            case 3: tile<F, R, 3>(k, w, w_stride, acts + c0*acts_stride, acts_stride, dst + c0*ldd, ldd); break;
        }
    }
}

template <typename F>
void mul(int64_t k, const char * w, size_t w_stride, int n_rows,
         const char * acts, size_t acts_stride, int n_cols, float * dst, int64_t ldd, void *) {
    if (n_rows == TILE_ROWS) {
        mul_rows<F, TILE_ROWS>(k, w, w_stride, acts, acts_stride, n_cols, dst, ldd);
        return;
    }
    for (int r = 0; r < n_rows; r++) {
        mul_rows<F, 1>(k, w + r*w_stride, w_stride, acts, acts_stride, n_cols, dst + r, ldd);
    }
}

template <typename F> const panel_family * family_of() {
    static const panel_family family = { acts_size, acts_quantize, scratch_size, mul<F>, nullptr, nullptr, TILE_ROWS, 1, 256 };
    return &family;
}

}  // namespace

const panel_family * panel_family_float(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_F16:  return family_of<format_f16>();
        case GGML_TYPE_BF16: return family_of<format_bf16>();
        default:             return nullptr;
    }
}

#else

const panel_family * panel_family_float(enum ggml_type) { return nullptr; }

#endif
