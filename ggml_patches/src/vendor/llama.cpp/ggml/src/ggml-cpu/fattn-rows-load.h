#pragma once

// K and V cells as floats

#include "fattn-rows-simd.h"

#if defined(GGML_FATTN_ROWS)

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml-impl.h"
#include "simd-mappings.h"

#include <algorithm>
#include <cstring>

namespace fattn_rows {

template <typename T>
static inline void load_plain(const char * src, int64_t d0, int64_t d1, float * dst) {
    const T * x = (const T *) src;
    int64_t d = d0;
    for (; d + W <= d1; d += W) {
        v_store(dst + d - d0, v_load(x + d));
    }
    if (d < d1) {
        T tail[W] = {};
        std::copy(x + d, x + d1, tail);
        float y[W];
        v_store(y, v_load(tail));
        std::copy(y, y + (d1 - d), dst + d - d0);
    }
}

// d0 and d1 multiples of W
static inline void load_q8_0(const char * src, int64_t d0, int64_t d1, float * dst) {
    const block_q8_0 * x = (const block_q8_0 *) src;
    int64_t d = d0;
    for (; d%QK8_0 == 0 && d + QK8_0 <= d1; d += QK8_0, dst += QK8_0) {
        const block_q8_0 & b = x[d/QK8_0];
        const vf scale = v_set1(GGML_CPU_FP16_TO_FP32(b.d));
        for (int j = 0; j < QK8_0; j += W) {
            v_store(dst + j, v_mul(v_load(b.qs + j), scale));
        }
    }
    for (; d < d1; d += W, dst += W) { // parts of blocks
        const block_q8_0 & b = x[d/QK8_0];
        v_store(dst, v_mul(v_load(b.qs + d%QK8_0), v_set1(GGML_CPU_FP16_TO_FP32(b.d))));
    }
}

// any type, by whole blocks. tmp holds a row
static inline void load_blocks(ggml_type type, const char * src, int64_t d0, int64_t d1, float * dst, float * tmp) {
    const int64_t blck = ggml_blck_size(type);
    const int64_t b0   = d0/blck;
    const int64_t b1   = (d1 + blck - 1)/blck;
    const bool    fits = b0*blck == d0 && b1*blck == d1;
    ggml_get_type_traits(type)->to_float(src + b0*ggml_type_size(type), fits ? dst : tmp, (b1 - b0)*blck);
    if (!fits) {
        memcpy(dst, tmp + d0 - b0*blck, (d1 - d0)*sizeof(float));
    }
}

// elements d0 .. d1 of n rows, filled up with zeros to ld
static inline void load_rows(ggml_type type, const char * src, size_t nb, int64_t n, int64_t d0, int64_t d1, float * dst, int64_t ld, float * tmp) {
    for (int64_t i = 0; i < n; ++i, src += nb, dst += ld) {
        switch (type) {
            case GGML_TYPE_F32:  load_plain<float>      (src, d0, d1, dst); break;
            case GGML_TYPE_F16:  load_plain<ggml_fp16_t>(src, d0, d1, dst); break;
            case GGML_TYPE_BF16: load_plain<ggml_bf16_t>(src, d0, d1, dst); break;
            case GGML_TYPE_Q8_0: load_q8_0              (src, d0, d1, dst); break; // rows are whole blocks of 32, so are their parts
            default:             load_blocks      (type, src, d0, d1, dst, tmp); break;
        }
        for (int64_t d = d1 - d0; d < ld; ++d) {
            dst[d] = 0.0f;
        }
    }
}

} // namespace fattn_rows

#endif
