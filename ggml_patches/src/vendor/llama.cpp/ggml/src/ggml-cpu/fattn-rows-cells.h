#pragma once

// which cells the query rows of a pass see

#include "fattn-rows-plan.h"

#if defined(GGML_FATTN_ROWS)

namespace fattn_rows {

// of x != 0
static inline int lowest_bit(uint32_t x) {
#if defined(_MSC_VER) && !defined(__clang__)
    unsigned long i;
    _BitScanForward(&i, x);
    return (int) i;
#else
    return __builtin_ctz(x);
#endif
}

static inline int highest_bit(uint32_t x) {
#if defined(_MSC_VER) && !defined(__clang__)
    unsigned long i;
    _BitScanReverse(&i, x);
    return (int) i;
#else
    return 31 - __builtin_clz(x);
#endif
}

// the mask of one stream, or none: all cells are visible then
struct mask_rows {
    const ggml_tensor * mask;
    int64_t i3;
    int64_t n_kv;

    // the mask of a block of cells. it is put together in place where there is no mask or the cells end inside
    const ggml_fp16_t * block(int64_t iq, int64_t h, int64_t b, ggml_fp16_t * place) const {
        const ggml_fp16_t hidden = 0xfc00; // -inf
        const ggml_fp16_t * m = nullptr;
        if (mask) {
            m = (const ggml_fp16_t *) ((const char *) mask->data + iq*mask->nb[1] + h%mask->ne[2]*mask->nb[2] + i3%mask->ne[3]*mask->nb[3]) + b*BLOCK;
        }
        const int64_t n = std::min(BLOCK, n_kv - b*BLOCK);
        if (m && n == BLOCK) {
            return m;
        }
        for (int64_t i = 0; i < BLOCK; ++i) {
            place[i] = i >= n ? hidden : m ? m[i] : 0;
        }
        return place;
    }
};

// the blocks b0 .. b1 that hold all cells that a query row sees; none: b0 == b1
struct span {
    int64_t b0, b1;

    bool meets(const span & other) const {
        return b0 == b1 || other.b0 == other.b1 || (b0 < other.b1 && other.b0 < b1);
    }

    void add(const span & other) {
        if (b0 == b1) {
            *this = other;
        } else if (other.b0 != other.b1) {
            b0 = std::min(b0, other.b0);
            b1 = std::max(b1, other.b1);
        }
    }
};

static inline bool sees_any(const mask_rows & rows, int64_t iq, int64_t b) {
    const __m256i ninf = _mm256_set1_epi16((short) 0xfc00);
    ggml_fp16_t place[BLOCK];
    const ggml_fp16_t * m  = rows.block(iq, 0, b, place);
    const __m256i       lo = _mm256_loadu_si256((const __m256i *) m);
    const __m256i       hi = _mm256_loadu_si256((const __m256i *) (m + 16));
    return _mm256_movemask_epi8(_mm256_and_si256(_mm256_cmpeq_epi16(lo, ninf), _mm256_cmpeq_epi16(hi, ninf))) != -1;
}

static inline span span_of_row(const mask_rows & rows, int64_t iq, int64_t n_blk) {
    span s = { 0, n_blk };
    while (s.b0 < s.b1 && !sees_any(rows, iq, s.b0)) {
        ++s.b0;
    }
    while (s.b0 < s.b1 && !sees_any(rows, iq, s.b1 - 1)) {
        --s.b1;
    }
    return s;
}

// how many query rows from q0 on, max at most, are to share a pass. all rows of a pass are computed for all cells that any of
// them sees, so those of texts that lie apart in the cache go separate ways
static inline int64_t n_together(const mask_rows & rows, int64_t n_blk, int64_t q0, int64_t max) {
    if (max == 1 || !rows.mask || rows.mask->ne[2] > 1) {
        return max;
    }
    span all = span_of_row(rows, q0, n_blk);
    for (int64_t n = 1; n < max; ++n) {
        const span next = span_of_row(rows, q0 + n, n_blk);
        if (!all.meets(next)) {
            return n;
        }
        all.add(next);
    }
    return max;
}

struct cells {
    int64_t    n_blk;
    int64_t    n_list;
    uint32_t * vis;   // of each block, the cells that a query row sees
    int32_t  * list;  // the blocks that have such cells
    uint8_t  * plain; // [block][query row] the row sees all cells of the block, without bias

    // for the query rows q0 .. q0 + nq and the heads h0 .. h0 + nh
    void scan(const mask_rows & rows, int64_t q0, int64_t nq, int64_t h0, int64_t nh) {
        const __m256i ninf    = _mm256_set1_epi16((short) 0xfc00);
        const int64_t n_heads = rows.mask && rows.mask->ne[2] > 1 ? nh : 1;

        n_list = 0;
        for (int64_t b = 0; b < n_blk; ++b) {
            uint32_t seen = 0;
            for (int64_t iq = 0; iq < nq; ++iq) {
                __m256i any = _mm256_setzero_si256();
                for (int64_t h = 0; h < n_heads; ++h) {
                    ggml_fp16_t place[BLOCK];
                    const ggml_fp16_t * m  = rows.block(q0 + iq, h0 + h, b, place);
                    const __m256i       lo = _mm256_loadu_si256((const __m256i *) m);
                    const __m256i       hi = _mm256_loadu_si256((const __m256i *) (m + 16));
                    const __m256i       eq = _mm256_packs_epi16(_mm256_cmpeq_epi16(lo, ninf), _mm256_cmpeq_epi16(hi, ninf));
                    seen |= ~(uint32_t) _mm256_movemask_epi8(_mm256_permute4x64_epi64(eq, 0xd8));
                    any   = _mm256_or_si256(any, _mm256_or_si256(lo, hi));
                }
                plain[b*nq + iq] = _mm256_testz_si256(any, any);
            }
            vis[b] = seen;
            if (seen) {
                list[n_list++] = (int32_t) b;
            }
        }
    }

    // the next run of visible cells at or after c: c .. end
    bool next_run(int64_t & c, int64_t & end) const {
        int64_t  b    = c/BLOCK;
        uint32_t bits = b < n_blk ? vis[b] >> c%BLOCK << c%BLOCK : 0;
        while (!bits) {
            if (++b >= n_blk) {
                return false;
            }
            bits = vis[b];
        }
        const int lo = lowest_bit(bits);
        c   = b*BLOCK + lo;
        end = b*BLOCK + lo + run_length(bits >> lo, BLOCK - lo);
        while (end == (b + 1)*BLOCK && b + 1 < n_blk && (vis[b + 1] & 1)) {
            ++b;
            end += run_length(vis[b], BLOCK);
        }
        return true;
    }

private:
    static int64_t run_length(uint32_t bits, int64_t max) {
        return ~bits ? std::min<int64_t>(lowest_bit(~bits), max) : max;
    }
};

} // namespace fattn_rows

#endif
