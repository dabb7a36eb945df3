#pragma once

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

struct ggml_compute_params;

#ifdef __cplusplus
extern "C" {
#endif

// Flash attention for any number of query rows.
//
// All heads of a group and all query rows share each K and V cell, and a row's result depends on the cells that its mask lets it
// see and on their order, on nothing else: not on the other rows, the masked cells between, the padding or the threads.

// whether this build has this path
bool ggml_fattn_rows_available(void);

// whether this path computes the op; false leaves it to the general one
bool ggml_fattn_rows_supported(const struct ggml_tensor * dst);

// bytes of params->wdata that n_tasks threads need
size_t ggml_fattn_rows_wdata_size(const struct ggml_tensor * dst, int n_tasks);

void ggml_compute_forward_fattn_rows(const struct ggml_compute_params * params, struct ggml_tensor * dst);

#ifdef __cplusplus
}
#endif
