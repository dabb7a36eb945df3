#include "fattn-rows.h"

#include "fattn-rows-worker.h"
#include "ggml-cpu-impl.h"
#include "row-kernels.h"

#if defined(GGML_FATTN_ROWS)

namespace fattn_rows {

static bool type_supported(ggml_type type) {
    return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
}

} // namespace fattn_rows

bool ggml_fattn_rows_available(void) {
    return true;
}

bool ggml_fattn_rows_supported(const ggml_tensor * dst) {
    const ggml_tensor * q = dst->src[0];
    const ggml_tensor * k = dst->src[1];
    const ggml_tensor * v = dst->src[2];

    return ggml_row_kernels_enabled() && q->type == GGML_TYPE_F32 &&
        fattn_rows::type_supported(k->type) && fattn_rows::type_supported(v->type) &&
        k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] && q->ne[3] == k->ne[3] && q->ne[2]%k->ne[2] == 0;
}

size_t ggml_fattn_rows_wdata_size(const ggml_tensor * dst, int n_tasks) {
    using fattn_rows::plan;
    if (!ggml_fattn_rows_supported(dst)) {
        return 0;
    }
    const size_t together = plan(dst, n_tasks, dst->src[1]->ne[2]).wdata_size(n_tasks);
    return fattn_rows::is_small(dst) ? std::max(together, n_tasks*plan(dst, 1, 1).wdata_size(1)) : together;
}

// calls f(stream, first query row, rows, first KV head, heads) for all passes
template <typename F>
static void for_passes(const fattn_rows::plan & pl, const ggml_tensor * dst, F && f) {
    for (int64_t i3 = 0; i3 < dst->src[0]->ne[3]; ++i3) {
        const fattn_rows::mask_rows rows = { dst->src[3], i3, pl.n_kv };
        for (int64_t q0 = 0, nq; q0 < pl.n_q; q0 += nq) {
            nq = fattn_rows::n_together(rows, pl.n_blk, q0, std::min(pl.tile_q, pl.n_q - q0));
            for (int64_t h0 = 0; h0 < pl.n_head_kv; h0 += pl.tile_h) {
                f(i3, q0, nq, h0, std::min(pl.tile_h, pl.n_head_kv - h0));
            }
        }
    }
}

static void compute_alone(const ggml_compute_params * params, ggml_tensor * dst) {
    const fattn_rows::plan pl(dst, 1, 1);
    const size_t size = pl.wdata_size(1);
    GGML_ASSERT(params->wsize >= size*params->nth);

    fattn_rows::worker w(pl, dst, (char *) params->wdata + size*params->ith, 0, 1);

    const int64_t n_streams = dst->src[0]->ne[3];
    const int64_t n_heads   = pl.n_head_kv*n_streams;
    const int64_t t0 = n_heads*params->ith/params->nth;
    const int64_t t1 = n_heads*(params->ith + 1)/params->nth;
    for_passes(pl, dst, [&](int64_t i3, int64_t q0, int64_t nq, int64_t h0, int64_t nh) {
        const int64_t t = i3*pl.n_head_kv + h0;
        if (t >= t0 && t < t1) {
            w.start(i3, q0, nq, h0, nh);
            w.compute_scores();
            w.compute_probs();
            w.compute_outs();
        }
    });
}

static void compute_together(const ggml_compute_params * params, ggml_tensor * dst) {
    const fattn_rows::plan pl(dst, params->nth, dst->src[1]->ne[2]);
    GGML_ASSERT(params->wsize >= pl.wdata_size(params->nth));

    fattn_rows::worker w(pl, dst, params->wdata, params->ith, params->nth);

    bool first = true;
    for_passes(pl, dst, [&](int64_t i3, int64_t q0, int64_t nq, int64_t h0, int64_t nh) {
        if (!first) {
            ggml_barrier(params->threadpool); // the scores of the last pass have been read
        }
        first = false;
        w.start(i3, q0, nq, h0, nh);
        w.compute_scores();
        ggml_barrier(params->threadpool);
        w.compute_probs();
        ggml_barrier(params->threadpool);
        w.compute_outs();
    });
}

void ggml_compute_forward_fattn_rows(const ggml_compute_params * params, ggml_tensor * dst) {
    if (fattn_rows::threads_alone(dst, params->nth)) {
        compute_alone(params, dst);
    } else {
        compute_together(params, dst);
    }
}

#else

bool ggml_fattn_rows_available(void) {
    return false;
}

bool ggml_fattn_rows_supported(const ggml_tensor * dst) {
    GGML_UNUSED(dst);
    return false;
}

size_t ggml_fattn_rows_wdata_size(const ggml_tensor * dst, int n_tasks) {
    GGML_UNUSED(dst);
    GGML_UNUSED(n_tasks);
    return 0;
}

void ggml_compute_forward_fattn_rows(const ggml_compute_params * params, ggml_tensor * dst) {
    GGML_UNUSED(params);
    GGML_UNUSED(dst);
    GGML_ABORT("not built");
}

#endif
