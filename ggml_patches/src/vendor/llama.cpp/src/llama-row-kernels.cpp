#include "llama-row-kernels.h"

#include "llama-cpu-function.h"

bool llama_row_kernels_enabled(void) {
    const auto enabled = cpu_function<bool (*)()>("ggml_row_kernels_enabled");
    return enabled && enabled() && llama_row_kernels_supports_attention();
}

bool llama_row_kernels_set_enabled(bool value) {
    const auto set_enabled = cpu_function<void (*)(bool)>("ggml_row_kernels_set_enabled");
    if (!set_enabled || !llama_row_kernels_supports_attention()) {
        return false;
    }
    set_enabled(value);
    return true;
}

bool llama_row_kernels_supports_type(enum ggml_type type) {
    const auto supports = cpu_function<bool (*)(enum ggml_type)>("ggml_row_kernels_supports_type");
    return supports && supports(type);
}

bool llama_row_kernels_supports_attention(void) {
    const auto supports = cpu_function<bool (*)()>("ggml_row_kernels_supports_attention");
    return supports && supports();
}

bool llama_cpu_peaks(int32_t n_threads, double * read_bytes, double * products) {
    const auto peaks = cpu_function<bool (*)(int, double *, double *)>("ggml_row_kernels_peaks");
    return peaks && peaks(n_threads, read_bytes, products);
}
