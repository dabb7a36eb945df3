#pragma once

// Kernels whose result for a row does not depend on the other rows of the batch: the switch, and what is known about them.

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// On by default; off with GGML_CPU_ROW_KERNELS=0 in the environment or by the setter. Off, everything is computed as
// without them. Weights are rearranged, or not, when a model is loaded, so the switch belongs before loading; later it decides
// about the weights that are not rearranged, and attention. It may be changed while no model is being loaded and no graph
// computed, of whatever context.
bool ggml_row_kernels_enabled(void);
void ggml_row_kernels_set_enabled(bool enabled);

// whether products with weights of this type have row kernels in this build
bool ggml_row_kernels_supports_type(enum ggml_type type);

// whether attention has row kernels in this build
bool ggml_row_kernels_supports_attention(void);

// The peaks of this machine with n_threads: bytes read from memory a second, and 8-bit products a second. Takes about a
// second. false: not known for this build.
bool ggml_row_kernels_peaks(int n_threads, double * read_bytes, double * products);

#ifdef __cplusplus
}
#endif
