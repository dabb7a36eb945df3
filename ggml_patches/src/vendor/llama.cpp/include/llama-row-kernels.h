#pragma once

// CPU kernels whose result for a token does not depend on how many tokens are evaluated with it, so that text does not
// depend on speculation. These functions reach them wherever the CPU back end lives, also in a module loaded at run time.

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// whether they are in use; false as well when the CPU back end has none
LLAMA_API bool llama_row_kernels_enabled(void);

// Turns them on or off. Belongs before a model is loaded, as weights are rearranged for the one or the other then; later it
// decides about the rest. Not while a model is loaded or anything is evaluated, in whatever context. false: the CPU back end
// has none
LLAMA_API bool llama_row_kernels_set_enabled(bool enabled);

// whether they cover weights of this type
LLAMA_API bool llama_row_kernels_supports_type(enum ggml_type type);

// whether they cover attention
LLAMA_API bool llama_row_kernels_supports_attention(void);

// The peaks of this machine with n_threads, for a roofline: bytes read from memory a second, products of 8-bit integers a
// second. Takes about a second. false: not known
LLAMA_API bool llama_cpu_peaks(int32_t n_threads, double * read_bytes, double * products);

#ifdef __cplusplus
}
#endif
