#pragma once

// What a family of weight types offers to the driver in panel.cpp.

#include "ggml.h"

#include <stddef.h>
#include <stdint.h>

// The driver fetches this much of the weights of a chunk before its first panel, a kernel may fetch as much ahead.
static const size_t PANEL_PREFETCH_BYTES = 8*1024;

// How far ahead a packed panel is fetched. Measured on Zen 4 at 2 to 16 KiB, into the L2 cache: less leaves the processor
// waiting (its own foresight ends with the page), more is lost again.
static const size_t PANEL_PACKED_AHEAD = 6*1024;

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

    // The same for n_rows rows that `pack` has put at `panel`. Both nullptr: rows of this type are not packed.
    void (*mul_packed)(int64_t k, const char * panel, const char * acts, size_t acts_stride, int n_cols,
                       float * dst, int64_t ldd, void * scratch);

    // Interleaves n_rows rows of `stride` bytes, a multiple of four, to as many bytes at out, 64-byte aligned.
    void (*pack)(const char * rows, size_t stride, char * out);

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

// that of any type, or nullptr
const panel_family * panel_family_of(enum ggml_type type);

// The common way to pack: vector i of out has the four bytes i of all rows.
void panel_pack(const char * rows, size_t stride, char * out);
