#pragma once

// the three steps of a pass, between which all its threads meet: scores, probabilities, outputs

#include "fattn-rows-load.h"
#include "fattn-rows-pass.h"

#if defined(GGML_FATTN_ROWS)

namespace fattn_rows {

// The probabilities are summed as integers in units of 2^-29: such sums are exact in any order, and cells with p = 0 leave no
// trace. The outputs are summed strictly in the order of the cells, where p = 0 leaves none either.
static constexpr float SUM_UNIT = 536870912.0f;

// one thread's share of the op
struct worker : pass {
    using pass::pass;

    void scale_queries() {
        for (int64_t r = 0; r < nh*head_rows; ++r) {
            const float * x = (const float *) ((const char *) q->data + query_of_row(r)*q->nb[1] + head_of_row(r)*q->nb[2] + i3*q->nb[3]);
            float * y = qs + r*pl.dkp;
            for (int64_t d = 0; d < pl.dk; ++d) {
                y[d] = x[d]*pa.scale;
            }
            for (int64_t d = pl.dk; d < pl.dkp; ++d) {
                y[d] = 0.0f;
            }
        }
    }

    const char * k_cell(int64_t h, int64_t c) const {
        return (const char *) k->data + c*k->nb[1] + (h0 + h)*k->nb[2] + i3*k->nb[3];
    }

    const char * v_cell(int64_t h, int64_t c) const {
        return (const char *) v->data + c*v->nb[1] + (h0 + h)*v->nb[2] + i3*v->nb[3];
    }

    // scores of all rows of a KV head against the visible cells of a block
    void dot_unit(int64_t b, int64_t h) {
        const int64_t c0 = b*BLOCK + lowest_bit(seen.vis[b])/C_DOT*C_DOT;
        const int64_t n  = b*BLOCK + highest_bit(seen.vis[b]) + 1 - c0;

        op_dot op = {
            scores + h*head_rows*pl.lds + c0, pl.lds, qs + h*head_rows*pl.dkp, pl.dkp, k_cell(h, c0), k->nb[1], n, pl.dkp, buf, 0,
        };
        const char * next = k_cell(h, (b + 1)*BLOCK);
        const bool in_place = pl.dk == pl.dkp;
        if (in_place && k->type == GGML_TYPE_F16) {
            dot_tiles<ggml_fp16_t>(op, next);
        } else if (in_place && k->type == GGML_TYPE_BF16) {
            dot_tiles<ggml_bf16_t>(op, next);
        } else if (in_place && k->type == GGML_TYPE_F32) {
            dot_tiles<float>(op, next);
        } else {
            load_rows(k->type, op.k, op.nbk, n, 0, pl.dk, buf, pl.dkp, tmp);
            op.k     = (const char *) buf;
            op.nbk   = pl.dkp*sizeof(float);
            dot_tiles<float>(op, next);
        }
    }

    template <typename T>
    void dot_tiles(op_dot op, const char * next) {
        const op_dot first = op;
        const size_t size = ggml_row_size(k->type, pl.dk);
        for_tiles((int) head_rows, [&](int r0, int n, int i, int n_tiles) {
            if (n_tiles <= 2 && op.k != (const char *) buf) {
                op.ahead = i == 0 ? BLOCK*k->nb[1] : 0;
            } else {
                prefetch_part(next, k->nb[1], size, BLOCK, i, n_tiles);
            }
            op.s = first.s + r0*pl.lds;
            op.q = first.q + r0*pl.dkp;
            run_tiles<T>(op, n, i, n_tiles);
            if (kept<T>(n_tiles)) {
                op.k   = (const char *) buf;
                op.nbk = pl.dkp*sizeof(float);
            }
        });
    }

    // whether the first tile keeps the cells it converts for the others. a few tiles convert them themselves
    template <typename T>
    static bool kept(int n_tiles) {
        return sizeof(T) < sizeof(float) && n_tiles > 4;
    }

    template <typename T, typename Op>
    static void run_tiles(const Op & op, int n_rows, int i, int n_tiles) {
        if (!kept<T>(n_tiles)) {
            run_tile<T, false>(op, n_rows);
        } else if (i == 0) {
            run_tile<T, true>(op, n_rows);
        } else {
            run_tile<float, false>(op, n_rows);
        }
    }

    // softcap, bias and mask of a row's scores in a block, and the max of each lane
    void finish_block(float * s, const ggml_fp16_t * m, float slope, float * max) const {
        vf vmax = v_load(max);
        for (int64_t i = 0; i < BLOCK; i += W) {
            vf x = v_load(s + i);
            if (pa.softcap != 0.0f) {
                x = v_mul(v_tanh(x), v_set1(pa.softcap));
            }
            if (m) {
                const vf mv = v_load(m + i);
                x = v_hide(mv, v_fma(v_set1(slope), mv, x));
            }
            vmax = v_max(x, vmax);
            if (m || pa.softcap != 0.0f) {
                v_store(s + i, x);
            }
        }
        v_store(max, vmax);
    }

    void compute_scores() {
        scale_queries();

        std::fill(max, max + nh*head_rows*W, -INFINITY);

        for (int64_t u = u0; u < u1; ++u) {
            dot_unit(seen.list[u/nh], u%nh);
            finish_unit(seen.list[u/nh], u%nh);
        }
        for (int64_t r = 0; r < nh*head_rows; ++r) {
            all_max[ith*pl.n_rows_pad + r] = v_hmax(v_load(max + r*W));
        }
    }

    void finish_unit(int64_t b, int64_t h) {
        const mask_rows rows = { mask, i3, pl.n_kv };
        for (int64_t iq = 0; iq < nq; ++iq) {
            const bool plain = seen.plain[b*nq + iq];
            for (int64_t g = 0; g < pl.group; ++g) {
                const int64_t r = h*head_rows + iq*pl.group + g;
                float *       s = scores + r*pl.lds + b*BLOCK;
                if (plain) {
                    finish_block(s, nullptr, 1.0f, max + r*W);
                } else {
                    ggml_fp16_t place[BLOCK];
                    finish_block(s, rows.block(q0 + iq, head_of_row(r), b, place), pa.slope(head_of_row(r)), max + r*W);
                }
            }
        }
    }

    // max of the row over all threads and the sink
    float max_of_row(int64_t r) const {
        float x = sinks ? sinks[head_of_row(r)] : -INFINITY;
        for (int i = 0; i < nth; ++i) {
            const float y = all_max[i*pl.n_rows_pad + r];
            x = y > x ? y : x;
        }
        return x;
    }

    // scores to probabilities, not yet divided by their sum
    void compute_probs() {
        for (int64_t h = 0; h < nh; ++h) {
            // units h, h + nh, ..
            const int64_t l0 = (u0 - h + nh - 1)/nh;
            const int64_t l1 = (u1 - h + nh - 1)/nh;
            for (int64_t r = h*head_rows; r < (h + 1)*head_rows; ++r) {
                const float max = max_of_row(r);
                // if all is hidden, exp(-inf - 0) = 0
                all_sum[ith*pl.n_rows_pad + r] = exp_row(scores + r*pl.lds, seen.list + l0, l1 - l0, max == -INFINITY ? 0.0f : max);
            }
        }
    }

    // s = exp(s - max) in n blocks, and the sum in units
    static uint64_t exp_row(float * s, const int32_t * list, int64_t n, float max) {
        const vf vmax = v_set1(max);
        const vf unit = v_set1(SUM_UNIT);
        vi sum = v_zero_i();
        for (int64_t l = 0; l < n; ++l) {
            float * x = s + list[l]*BLOCK;
            vi part = v_zero_i(); // of BLOCK/W <= 4 numbers up to 2^29: no overflow
            for (int64_t i = 0; i < BLOCK; i += W) {
                const vf p = v_exp_neg(v_sub(v_load(x + i), vmax));
                v_store(x + i, p);
                part = v_add32(part, v_round(v_mul(p, unit)));
            }
            sum = v_add64(sum, v_add64(v_even(part), v_odd(part)));
        }
        return v_hsum64(sum);
    }

    float inverse_sum_of_row(int64_t r) const {
        uint64_t sum = 0;
        for (int i = 0; i < nth; ++i) {
            sum += all_sum[i*pl.n_rows_pad + r];
        }
        if (sinks) {
            const float max = max_of_row(r);
            sum += max == -INFINITY ? 0 : (uint64_t) (expf(sinks[head_of_row(r)] - max)*SUM_UNIT + 0.5f);
        }
        return sum == 0 ? 0.0f : (float) (SUM_UNIT/(double) sum);
    }

    // D vectors of the outputs of KV head h, from element d0 on: add n cells
    template <int D>
    void mad_cells(float * o, int64_t h, int64_t d0, int64_t c, int64_t n) {
        const int64_t d1 = std::min(d0 + D*W, pl.dv);
        const char *  x  = v_cell(h, c);

        op_mad<D> op = { o, scores + h*head_rows*pl.lds + c, pl.lds, x + d0*ggml_type_size(v->type), v->nb[1], n, buf, 0 };

        const char * next = v_cell(h, c + CHUNK) + d0/ggml_blck_size(v->type)*ggml_type_size(v->type);
        const size_t size = (d1 - d0)*ggml_type_size(v->type)/ggml_blck_size(v->type);

        const bool in_place = d1 - d0 == D*W;
        if (in_place && v->type == GGML_TYPE_F16) {
            mad_tiles<ggml_fp16_t>(op, next, size);
        } else if (in_place && v->type == GGML_TYPE_BF16) {
            mad_tiles<ggml_bf16_t>(op, next, size);
        } else if (in_place && v->type == GGML_TYPE_F32) {
            mad_tiles<float>(op, next, size);
        } else {
            load_rows(v->type, x, v->nb[1], n, d0, d1, buf, D*W, tmp);
            op.v     = (const char *) buf;
            op.nbv   = D*W*sizeof(float);
            mad_tiles<float>(op, next, size);
        }
    }

    template <typename T, int D>
    void mad_tiles(op_mad<D> op, const char * next, size_t size) {
        const op_mad<D> first = op;
        for_tiles((int) head_rows, [&](int r0, int n, int i, int n_tiles) {
            if (n_tiles <= 2 && op.v != (const char *) buf) {
                op.ahead = i == 0 ? CHUNK*v->nb[1] : 0;
            } else {
                prefetch_part(next, v->nb[1], size, CHUNK, i, n_tiles);
            }
            op.o = first.o + r0*D*W;
            op.p = first.p + r0*pl.lds;
            run_tiles<T>(op, n, i, n_tiles);
            if (kept<T>(n_tiles)) {
                op.v   = (const char *) buf;
                op.nbv = D*W*sizeof(float);
            }
        });
    }

    void mad_cells(float * o, int64_t h, int64_t d0, int n_vec, int64_t c, int64_t n) {
        switch (n_vec) {
            case 1: mad_cells<1>(o, h, d0, c, n); break;
            case 2: mad_cells<2>(o, h, d0, c, n); break;
            case 3: mad_cells<3>(o, h, d0, c, n); break;
            case 4: mad_cells<4>(o, h, d0, c, n); break;
        }
    }

    // this thread's share of the output vectors of all KV heads, in parts of up to D_MAD of one head
    template <typename F>
    void for_parts(F && f) {
        const int64_t t0 = nh*pl.n_vec*ith/nth;
        const int64_t t1 = nh*pl.n_vec*(ith + 1)/nth;
        for (int64_t t = t0; t < t1; ) {
            const int64_t j = t%pl.n_vec;
            const int64_t n = std::min(std::min<int64_t>(D_MAD, pl.n_vec - j), t1 - t);
            f(out + (t - t0)*head_rows*W, t/pl.n_vec, j*W, (int) n);
            t += n;
        }
    }

    // all parts take a chunk of cells before the next, so that V is read once, from front to back
    void compute_outs() {
        for (int64_t r = 0; r < nh*head_rows; ++r) {
            inv[r] = inverse_sum_of_row(r);
        }
        for_parts([&](float * o, int64_t, int64_t, int n_vec) {
            std::fill(o, o + head_rows*n_vec*W, 0.0f);
        });
        int64_t end;
        for (int64_t c = 0; seen.next_run(c, end); ) {
            for (; c < end; c += std::min(CHUNK, end - c)) {
                for_parts([&](float * o, int64_t h, int64_t d0, int n_vec) {
                    mad_cells(o, h, d0, n_vec, c, std::min(CHUNK, end - c));
                });
            }
        }
        for_parts([&](float * o, int64_t h, int64_t d0, int n_vec) {
            for (int64_t i = 0; i < head_rows; ++i) {
                store_row(o + i*n_vec*W, h, i, d0, n_vec);
            }
        });
    }

    void store_row(float * o, int64_t h, int64_t i, int64_t d0, int n_vec) {
        const int64_t r = h*head_rows + i;
        const int64_t d1 = std::min(d0 + n_vec*W, pl.dv);

        vf zero = v_zero();
        for (int j = 0; j < n_vec; ++j) {
            zero = v_fma(v_load(o + j*W), v_zero(), zero);
        }
        if (v_any_nan(zero)) {
            redo_row(o, h, i, d0, n_vec);
        }
        for (int j = 0; j < n_vec; ++j) {
            v_store(o + j*W, v_mul(v_load(o + j*W), v_set1(inv[r])));
        }
        const int64_t ir = (i3*dst->ne[2] + query_of_row(r))*dst->ne[1] + head_of_row(r);
        memcpy((char *) dst->data + ir*dst->nb[1] + d0*sizeof(float), o, (d1 - d0)*sizeof(float));
    }

    // a row that is not finite: an infinite V of a cell that only other rows see may have met its p = 0. leave such cells out
    void redo_row(float * o, int64_t h, int64_t i, int64_t d0, int n_vec) {
        const float * p = scores + (h*head_rows + i)*pl.lds;

        std::fill(o, o + n_vec*W, 0.0f);
        int64_t end;
        for (int64_t c = 0; seen.next_run(c, end); ) {
            for (; c < end; ++c) {
                if (p[c] == 0.0f) {
                    continue;
                }
                load_rows(v->type, v_cell(h, c), v->nb[1], 1, d0, std::min(d0 + n_vec*W, pl.dv), buf, n_vec*W, tmp);
                for (int j = 0; j < n_vec; ++j) {
                    v_store(o + j*W, v_fma(v_set1(p[c]), v_load(buf + j*W), v_load(o + j*W)));
                }
            }
        }
    }
};

} // namespace fattn_rows

#endif
