#pragma once

// what one attention op asks for, how its rows are cut into passes, and where the work memory of a pass lies

#include "fattn-rows-kernels.h"
#include "common.h"

#if defined(GGML_FATTN_ROWS)

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fattn_rows {

static constexpr int64_t BLOCK       = 32;              // cells whose scores are computed together
static constexpr int64_t CHUNK       = 64;              // cells whose V is converted together
static constexpr size_t  MAX_SCORES  = 4*1024*1024;      // bytes of scores, exceeded only where one query row needs more
static constexpr int64_t MAX_Q_ROWS  = 64;              // (query, head) rows of a KV head in a pass
static constexpr int64_t MAX_ROWS    = 256;             // (query, head) rows of a pass

static inline int64_t round_up(int64_t x, int64_t m) {
    return (x + m - 1)/m*m;
}

// parameters of the op
struct params {
    float    scale;
    float    max_bias;
    float    softcap;
    float    m0, m1; // bases of the ALiBi slopes
    uint32_t n_head_log2;

    explicit params(const ggml_tensor * dst) {
        memcpy(&scale,    (const float *) dst->op_params + 0, sizeof(float));
        memcpy(&max_bias, (const float *) dst->op_params + 1, sizeof(float));
        memcpy(&softcap,  (const float *) dst->op_params + 2, sizeof(float));
        if (softcap != 0.0f) {
            scale /= softcap;
        }
        n_head_log2 = 1u << (uint32_t) floor(log2(dst->src[0]->ne[2]));
        m0 = powf(2.0f, -(max_bias       )/n_head_log2);
        m1 = powf(2.0f, -(max_bias / 2.0f)/n_head_log2);
    }

    float slope(uint32_t h) const {
        return max_bias <= 0.0f ? 1.0f : h < n_head_log2 ? powf(m0, h + 1) : powf(m1, 2*(h - n_head_log2) + 1);
    }
};

struct plan {
    int64_t dk, dv;         // head sizes
    int64_t dkp;            // in eights
    int64_t n_vec;          // vectors of an output row
    int64_t n_kv, n_blk;
    int64_t n_q;            // query rows of a stream
    int64_t n_head_kv;
    int64_t group;          // heads that share a KV head
    int64_t lds;            // floats between the score rows. an odd number of cache lines, or the rows would share cache sets

    int64_t tile_q;         // most query rows in a pass
    int64_t tile_h;         // most KV heads in a pass
    int64_t n_rows;         // most (query, head) rows in a pass

    // floats, all multiples of a cache line
    int64_t ofs_max;        // shared: scores, then max and sum of each thread
    int64_t ofs_sum;
    int64_t ofs_threads;
    int64_t thr_size;       // of each thread: scaled queries, converted cells, output, row values, visible blocks
    int64_t thr_buf;
    int64_t thr_tmp;
    int64_t thr_out;
    int64_t thr_max;
    int64_t thr_inv;
    int64_t thr_vis;
    int64_t thr_list;
    int64_t thr_plain;
    int64_t n_rows_pad;

    // for nth threads that share passes of up to max_h KV heads
    plan(const ggml_tensor * dst, int nth, int64_t max_h) {
        const ggml_tensor * q = dst->src[0];
        const ggml_tensor * k = dst->src[1];
        const ggml_tensor * v = dst->src[2];

        dk        = k->ne[0];
        dv        = v->ne[0];
        dkp       = round_up(dk, 8);
        n_vec     = (dv + W - 1)/W;
        n_kv      = k->ne[1];
        n_blk     = (n_kv + BLOCK - 1)/BLOCK;
        n_q       = q->ne[1];
        n_head_kv = k->ne[2];
        group     = q->ne[2]/k->ne[2];
        lds       = n_blk*BLOCK + 16*(1 + n_blk*BLOCK/16%2);

        const int64_t fit = std::max<int64_t>(1, MAX_SCORES/(lds*sizeof(float)));

        tile_q = cut(n_q,       std::min(MAX_Q_ROWS, fit)/group);
        tile_h = cut(n_head_kv, std::min(max_h, std::min(MAX_ROWS, fit)/(group*tile_q)));
        n_rows = tile_q*tile_h*group;
        n_rows_pad = round_up(n_rows, 16);

        ofs_max     = n_rows*lds;
        ofs_sum     = ofs_max + nth*n_rows_pad;
        ofs_threads = ofs_sum + nth*n_rows_pad*2;

        const int64_t d_max = std::max(dk, dv);
        thr_buf   = round_up(n_rows*dkp, 16);
        thr_tmp   = thr_buf   + round_up(std::max((BLOCK + C_DOT)*dkp, CHUNK*D_MAD*W), 16);
        thr_out   = thr_tmp   + round_up(d_max, 16);
        thr_max   = thr_out   + tile_q*group*((tile_h*n_vec + nth - 1)/nth)*16;
        thr_inv   = thr_max   + n_rows_pad*16;
        thr_vis   = thr_inv   + n_rows_pad;
        thr_list  = thr_vis   + round_up(n_blk, 16);
        thr_plain = thr_list  + round_up(n_blk, 16);
        thr_size  = thr_plain + round_up((tile_q*n_blk + 3)/4, 16) + 16;
    }

    // bytes. grows with nth, although each thread's outputs get fewer: an op may run on fewer threads than it was planned for
    size_t wdata_size(int nth) const {
        return sizeof(float)*(ofs_threads + nth*(thr_size + tile_q*group*16)) + 64;
    }

private:
    // the largest of the parts that n is cut into, none above max, all about the same
    static int64_t cut(int64_t n, int64_t max) {
        const int64_t n_parts = (n + std::max<int64_t>(max, 1) - 1)/std::max<int64_t>(max, 1);
        return (n + n_parts - 1)/n_parts;
    }
};

static inline int64_t n_macs(const ggml_tensor * dst) {
    return ggml_nrows(dst)*dst->src[1]->ne[1]*(dst->src[1]->ne[0] + dst->ne[0]);
}

// where more is to be done, K and V come faster in their order in memory
static inline bool is_small(const ggml_tensor * dst) {
    return n_macs(dst) <= 2000*1000;
}

// whether each thread takes KV heads on its own, without barriers, rather than all threads a share of each pass: where the op is
// small and the uneven load costs less than two barriers
static inline bool threads_alone(const ggml_tensor * dst, int nth) {
    const int64_t barrier_macs = 60*1000;
    const int64_t n_units = dst->src[1]->ne[2]*dst->src[1]->ne[3];
    const int64_t macs    = n_macs(dst);
    return nth > 1 && is_small(dst) && macs/n_units*((n_units + nth - 1)/nth) <= macs/nth + barrier_macs;
}

} // namespace fattn_rows

#endif
