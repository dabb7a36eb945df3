#pragma once

// Matrix products for a few activation columns.
//
// A group of weight rows, as many as a vector has 32-bit lanes, is interleaved to a panel: lane r of each vector holds four
// consecutive bytes of row r. Weights in their stock layout are interleaved during the product, once for all columns, into a
// small buffer in the L1 cache; those of a model are kept as panels by the first product that uses them (panel-packed.h). Every result is the sum of the same terms in the same order whatever the number of
// columns, of threads, and wherever the row and column lie in their tiles: that is what makes speculated text equal to
// plain text.

#include "ggml.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// true when products with weights of this type take this path on this build
bool ggml_panel_supports_type(enum ggml_type type);

// true when products with this weight tensor alone take this path: it must keep the stock layout
bool ggml_panel_supports_weights(const struct ggml_tensor * w);

// true when this operation takes this path
bool ggml_panel_supports_op(const struct ggml_tensor * dst);

// bytes of params->wdata that the operation needs
size_t ggml_panel_work_size(const struct ggml_tensor * dst, int n_threads);

// computes dst on all threads; false: not taken, nothing was done
bool ggml_compute_forward_mul_mat_panel(const struct ggml_compute_params * params, struct ggml_tensor * dst);

#ifdef __cplusplus
}
#endif
