#pragma once

// a thread's view of one pass: the tensors, its part of the work memory and of the work

#include "fattn-rows-cells.h"

#if defined(GGML_FATTN_ROWS)

namespace fattn_rows {

// A pass takes the query rows q0 .. q0 + nq of all heads of the KV heads h0 .. h0 + nh; its rows are
// ordered by KV head, query, head of the group.
struct pass {
    const plan & pl;
    const params pa;

    const ggml_tensor * q;
    const ggml_tensor * k;
    const ggml_tensor * v;
    const ggml_tensor * mask;
    const float       * sinks;
    ggml_tensor       * dst;

    const int ith;
    const int nth;

    float    * scores;
    float    * all_max;
    uint64_t * all_sum;

    float    * qs;    // scaled queries
    float    * buf;   // cells as floats
    float    * tmp;
    float    * out;
    float    * max;   // [row][lane] this thread's
    float    * inv;   // of each row's sum
    cells      seen;

    // the pass
    int64_t i3, q0, nq, h0, nh;
    int64_t head_rows; // rows of a KV head
    int64_t u0, u1;    // this thread's (block, KV head) units

    // thread ith of the nth that share passes; wdata is theirs
    pass(const plan & pl, ggml_tensor * dst, void * wdata, int ith, int nth) :
            pl(pl), pa(dst), q(dst->src[0]), k(dst->src[1]), v(dst->src[2]), mask(dst->src[3]),
            sinks(dst->src[4] ? (const float *) dst->src[4]->data : nullptr), dst(dst), ith(ith), nth(nth) {
        float * base = (float *) (((uintptr_t) wdata + 63)/64*64);
        scores  = base;
        all_max = base + pl.ofs_max;
        all_sum = (uint64_t *) (base + pl.ofs_sum);

        float * thr = base + pl.ofs_threads + ith*pl.thr_size;
        qs    = thr;
        buf   = thr + pl.thr_buf;
        tmp   = thr + pl.thr_tmp;
        out   = thr + pl.thr_out;
        max   = thr + pl.thr_max;
        inv   = thr + pl.thr_inv;
        seen.n_blk = pl.n_blk;
        seen.vis   = (uint32_t *) (thr + pl.thr_vis);
        seen.list  = (int32_t  *) (thr + pl.thr_list);
        seen.plain = (uint8_t  *) (thr + pl.thr_plain);
    }

    void start(int64_t i3_, int64_t q0_, int64_t nq_, int64_t h0_, int64_t nh_) {
        i3 = i3_;
        q0 = q0_;
        nq = nq_;
        h0 = h0_;
        nh = nh_;
        head_rows = nq*pl.group;
        seen.scan(mask_rows { mask, i3, pl.n_kv }, q0, nq, h0*pl.group, nh*pl.group);
        u0 = seen.n_list*nh*ith/nth;
        u1 = seen.n_list*nh*(ith + 1)/nth;
    }

    int64_t head_of_row(int64_t r) const {
        return (h0 + r/head_rows)*pl.group + r%pl.group;
    }

    int64_t query_of_row(int64_t r) const {
        return q0 + r%head_rows/pl.group;
    }
};

} // namespace fattn_rows

#endif
