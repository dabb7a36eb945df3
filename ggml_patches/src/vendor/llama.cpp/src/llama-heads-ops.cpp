#include "llama-heads-ops.h"

#include "llama-heads-weights.h"
#include "llama-row-math.h"
#include "llama-row-stats.h"

#include <algorithm>
#include <cmath>

// the part of n elements that a thread takes, in whole cache lines
static void thread_range(int64_t n, int ith, int nth, int64_t & begin, int64_t & end) {
    const int64_t lines = (n + 15)/16;
    begin = std::min(n, lines*ith/nth*16);
    end   = std::min(n, lines*(ith + 1)/nth*16);
}

static inline float silu(float x) {
    const float e = exp_neg(x < 0 ? x : -x);
    return x*(x < 0 ? e : 1.0f)/(1.0f + e);
}

LLAMA_ROW_CLONES
static void add_to(float * x, const float * y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        x[i] += y[i];
    }
}

// out = r + SiLU(l)
LLAMA_ROW_CLONES
static void gate(const float * l, const float * r, float * out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = r[i] + silu(l[i]);
    }
}

// out = x + SiLU(y + b)
LLAMA_ROW_CLONES
static void gate_biased(const float * x, const float * y, const float * b, float * out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = x[i] + silu(y[i] + b[i]);
    }
}

static float * row_of(const ggml_tensor * t, int64_t row) {
    return (float *) ((char *) t->data + row*t->nb[1]);
}

static void compute_first_block(ggml_tensor * dst, int ith, int nth, void * userdata) {
    const auto & l     = *(const llama_heads_host_level *) userdata;
    const auto * sums  = dst->src[0];
    const auto * above = dst->src[1];

    int64_t begin, end;
    thread_range(l.n_embd, ith, nth, begin, end);

    for (int64_t row = 0; row < dst->ne[1]; ++row) {
        float * s = row_of(sums, row);
        // the sums of the node above, but for the head that it has answered
        const float * add = above ? row_of(above, l.level->rows[row].above) + 2*l.n_embd : l.first_bias;
        for (int64_t part = 0; part < sums->ne[0]; part += l.n_embd) {
            add_to(s + part + begin, add + part + begin, end - begin);
        }
        gate(s + begin, s + l.n_embd + begin, row_of(dst, row) + begin, end - begin);
    }
}

ggml_tensor * llama_heads_first_block(ggml_context * ctx, ggml_tensor * sums, ggml_tensor * above, llama_heads_host_level * level) {
    ggml_tensor * args[] = { sums, above };
    return ggml_custom_4d(ctx, GGML_TYPE_F32, level->n_embd, sums->ne[1], 1, 1, args, above ? 2 : 1, compute_first_block, GGML_N_TASKS_MAX, level);
}

static void compute_residual(ggml_tensor * dst, int ith, int nth, void * /*userdata*/) {
    const float * bias = (const float *) dst->src[2]->data;

    int64_t begin, end;
    thread_range(dst->ne[0], ith, nth, begin, end);

    for (int64_t row = 0; row < dst->ne[1]; ++row) {
        gate_biased(row_of(dst->src[0], row) + begin, row_of(dst->src[1], row) + begin, bias + begin, row_of(dst, row) + begin, end - begin);
    }
}

ggml_tensor * llama_heads_residual(ggml_context * ctx, ggml_tensor * x, ggml_tensor * y, ggml_tensor * bias) {
    ggml_tensor * args[] = { x, y, bias };
    return ggml_custom_4d(ctx, GGML_TYPE_F32, x->ne[0], x->ne[1], 1, 1, args, 3, compute_residual, GGML_N_TASKS_MAX, nullptr);
}

// the children of a row take their tokens
static void pick_children(const llama_heads_host_level & l, const llama_heads_level::row & row, const llama_token * best,
        const float * logits, float lse, ggml_tensor * dst) {
    for (const auto & child : row.children) {
        const int32_t id = best[child.rank];
        l.tokens[child.node] = l.d2t ? l.d2t[id] : id;
        l.q     [child.node] = std::exp(logits[child.rank] - lse);
        if (child.next_row >= 0) {
            llama_heads_prefetch(*l.model, l.tokens[child.node]);
        }
    }
    for (const auto & child : row.children) {
        if (child.next_row >= 0) {
            llama_heads_embedding(*l.model, l.tokens[child.node], row_of(dst, child.next_row));
        }
    }
}

static void compute_pick(ggml_tensor * dst, int ith, int nth, void * userdata) {
    auto &          l      = *(llama_heads_host_level *) userdata;
    const auto *    logits = dst->src[0];
    const auto &    rows   = l.level->rows;
    const int32_t   n      = (int32_t) logits->ne[0];
    const int32_t   width  = l.level->width();
    const bool      shared = (size_t) logits->ne[1] < rows.size(); // heads that are not grounded have one row for all nodes

    for (int32_t i = ith; i < (int32_t) logits->ne[1]; i += nth) {
        float *       x    = row_of(logits, i);
        llama_token * best = l.best.data() + i*width;
        float *       top  = l.best_logits.data() + i*width;
        const int32_t k    = shared ? width : rows[i].width;

        if (l.output_bias) {
            add_to(x, l.output_bias, n);
        }
        float lse, entropy;
        llama_row_top_k(x, n, k, best, top);
        llama_row_lse  (x, n, top[0], &lse, &entropy);

        for (int32_t row = shared ? 0 : i; row < (shared ? (int32_t) rows.size() : i + 1); ++row) {
            pick_children(l, rows[row], best, top, lse, dst);
            if (row == l.level->greedy) {
                *l.top1 = std::exp(top[0] - lse);
            }
        }
    }
}

ggml_tensor * llama_heads_pick(ggml_context * ctx, ggml_tensor * logits, llama_heads_host_level * level) {
    level->best       .resize(logits->ne[1]*level->level->width());
    level->best_logits.resize(logits->ne[1]*level->level->width());
    return ggml_custom_4d(ctx, GGML_TYPE_F32, level->n_embd, std::max(1, level->level->n_next_rows()), 1, 1, &logits, 1,
            compute_pick, GGML_N_TASKS_MAX, level);
}
