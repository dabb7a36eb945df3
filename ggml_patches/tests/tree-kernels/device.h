#pragma once

#include <cstddef>
#include <cstdint>

// What a test program runs its cases on: the kernels of ggml-tree-kernels.h, alone or within the files of a back end.

struct mask_shape {
    int32_t n_kv;
    int32_t n_tokens;
    int32_t n_words;  // of bits for each token
    int32_t window;   // enum ggml_tree_window
    int32_t n_window;
    bool    is_f16;
};

// the arguments of ggml_tree_mask; pos is null without a window
void device_tree_mask(
    const mask_shape & shape, const int32_t * cells, const int32_t * tokens, const int32_t * pos, void * dst);

// rows of n floats, nb bytes apart; dst holds 2*k + 2 numbers of each row
void device_topk_stats(const float * x, size_t nb, int32_t n, int32_t n_rows, int32_t k, float * dst);
