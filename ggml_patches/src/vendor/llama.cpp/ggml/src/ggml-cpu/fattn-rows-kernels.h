#pragma once

// inner loops of the row attention: scores of cells for a few rows, and sums of V cells weighted for a few rows
//
// 16-bit cells are converted as they are read. The first tile of rows can keep the floats for the others.

#include "fattn-rows-simd.h"

#if defined(GGML_FATTN_ROWS)

namespace fattn_rows {

#if defined(GGML_FATTN_ROWS_512)
static constexpr int R_MAX = 6; // most rows of a tile
#else
static constexpr int R_MAX = 3;
#endif

static constexpr int C_DOT = W/2; // cells of a tile of scores
static constexpr int D_MAD = 4;   // most vectors of a tile of outputs

// R_MAX*4 sums, a vector of each row and one of the cells are in registers

static inline void prefetch(const char * x) {
    _mm_prefetch(x, _MM_HINT_T0);
}

// part i of n_parts of the lines of n cells
static inline void prefetch_part(const char * x, size_t nb, size_t size, int64_t n, int i, int n_parts) {
    for (int64_t c = n*i/n_parts; c < n*(i + 1)/n_parts; ++c) {
        for (size_t b = 0; b < size; b += 64) {
            prefetch(x + c*nb + b);
        }
    }
}

// how the rows are cut into tiles: as few as possible, of about the same height
template <typename F>
static inline void for_tiles(int n_rows, F && f) {
    const int n_tiles = (n_rows + R_MAX - 1)/R_MAX;
    for (int i = 0; i < n_tiles; ++i) {
        const int r0 = n_rows*i/n_tiles;
        f(r0, n_rows*(i + 1)/n_tiles - r0, i, n_tiles);
    }
}

// scores: s[r][c] = q[r] . k[c] for n cells, in whole groups of C_DOT
//
// lane l of 8 sums the elements l, l + 8, .. in order, then the lanes are added in a tree: the same for any row and cell
struct op_dot {
    float       * s;
    int64_t       lds;
    const float * q;
    int64_t       ldq;
    const char  * k;
    size_t        nbk;
    int64_t       n;
    int64_t       dk;    // a multiple of 8
    float       * keep;  // [cell][dk]
    size_t        ahead; // prefetch distance, 0: none

    template <typename T, bool KEEP, int R>
    void run() const {
        for (int64_t c = 0; c < n; c += C_DOT) {
            const T * x[C_DOT];
            for (int j = 0; j < C_DOT; ++j) {
                x[j] = (const T *) (k + (c + j < n ? c + j : n - 1)*nbk);
            }
            vf acc[R][4];
            for (int r = 0; r < R; ++r) {
                for (int j = 0; j < 4; ++j) {
                    acc[r][j] = v_zero();
                }
            }
            for (int64_t d = 0; d < dk; d += 8) {
                vf y[R];
                for (int r = 0; r < R; ++r) {
                    y[r] = load8_twice(q + r*ldq + d);
                }
                if (ahead && d*sizeof(T)%64 == 0) {
                    for (int j = 0; j < C_DOT; ++j) {
                        prefetch((const char *) (x[j] + d) + ahead);
                    }
                }
                for (int j = 0; j < 4; ++j) {
                    const vf z = load8_of_two(x[j] + d, x[j + C_DOT - 4] + d);
                    if (KEEP) {
                        store8_of_two(keep + (c + j)*dk + d, keep + (c + j + C_DOT - 4)*dk + d, z);
                    }
                    for (int r = 0; r < R; ++r) {
                        acc[r][j] = v_fma(y[r], z, acc[r][j]);
                    }
                }
            }
            for (int r = 0; r < R; ++r) {
                store_hsums(s + r*lds + c, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
            }
        }
    }
};

// outputs: o[r] += p[r][c]*v[c] for n cells, strictly in their order
template <int D>
struct op_mad {
    float       * o;     // [row][D*W]
    const float * p;
    int64_t       ldp;
    const char  * v;
    size_t        nbv;
    int64_t       n;
    float       * keep;  // [cell][D*W]
    size_t        ahead; // prefetch distance, 0: none

    template <typename T, bool KEEP, int R>
    void run() const {
        vf acc[R][D];
        for (int r = 0; r < R; ++r) {
            for (int j = 0; j < D; ++j) {
                acc[r][j] = v_load(o + (r*D + j)*W);
            }
        }
        const char * x = v;
        for (int64_t c = 0; c < n; ++c, x += nbv) {
            vf y[R];
            for (int r = 0; r < R; ++r) {
                y[r] = v_set1(p[r*ldp + c]);
            }
            if (ahead) {
                for (size_t b = 0; b < D*W*sizeof(T); b += 64) {
                    prefetch(x + ahead + b);
                }
            }
            for (int j = 0; j < D; ++j) {
                const vf z = v_load((const T *) x + j*W);
                if (KEEP) {
                    v_store(keep + (c*D + j)*W, z);
                }
                for (int r = 0; r < R; ++r) {
                    acc[r][j] = v_fma(y[r], z, acc[r][j]);
                }
            }
        }
        for (int r = 0; r < R; ++r) {
            for (int j = 0; j < D; ++j) {
                v_store(o + (r*D + j)*W, acc[r][j]);
            }
        }
    }
};

template <typename T, bool KEEP, typename Op>
static inline void run_tile(const Op & op, int n_rows) {
    switch (n_rows) {
        case 1: op.template run<T, KEEP, 1>(); break;
        case 2: op.template run<T, KEEP, 2>(); break;
        case 3: op.template run<T, KEEP, 3>(); break;
#if defined(GGML_FATTN_ROWS_512)
        case 4: op.template run<T, KEEP, 4>(); break;
        case 5: op.template run<T, KEEP, 5>(); break;
        case 6: op.template run<T, KEEP, 6>(); break;
#endif
    }
}

} // namespace fattn_rows

#endif
