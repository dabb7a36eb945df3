#pragma once

// What a family of weight types offers to the driver in panel.cpp.

#include "ggml.h"

#include <stddef.h>
#include <stdint.h>

struct panel_family {
    // Activations of one column of k values, quantised from F32 to a form that the kernels read.
    size_t (*acts_size)(int64_t k);                                     // bytes, a multiple of 64
    void   (*acts_quantize)(const float * x, void * acts, int64_t k);   // acts is 64-byte aligned

    // Bytes of 64-byte aligned scratch of one thread: the panel and what else the kernels keep.
    size_t (*scratch_size)(int64_t k);

    // dst[c*ldd + r] = row r of w . column c, for r < n_rows (<= panel rows of the family), c < n_cols (any number >= 1).
    // Column c starts at acts + c*acts_stride, row r at w + r*w_stride. Reads nothing outside the rows and columns given.
    void (*mul)(int64_t k, const char * w, size_t w_stride, int n_rows,
                const char * acts, size_t acts_stride, int n_cols,
                float * dst, int64_t ldd, void * scratch);

    int n_rows;  // rows of one panel
    int k_multiple;  // k must be a multiple of this

    // Pieces of k_split values may be quantised each on its own, by several threads: acts_size(a + b) is
    // acts_size(a) + acts_size(b) for any multiple a of it. 0: a column is one piece.
    int k_split = 0;
};

// nullptr: no kernel for this type in this build
const panel_family * panel_family_block32(enum ggml_type type);   // one scale (and min) per 32 weights: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL
const panel_family * panel_family_block256(enum ggml_type type);  // super-blocks: Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS
const panel_family * panel_family_float(enum ggml_type type);     // F16 BF16
