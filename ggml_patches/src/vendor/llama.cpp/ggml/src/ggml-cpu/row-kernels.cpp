#include "row-kernels.h"

#include "fattn-rows.h"
#include "panel/panel.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

static std::atomic<bool> & enabled_flag() {
    static std::atomic<bool> enabled([] {
        const char * GGML_CPU_ROW_KERNELS = getenv("GGML_CPU_ROW_KERNELS");
        return GGML_CPU_ROW_KERNELS == nullptr || strcmp(GGML_CPU_ROW_KERNELS, "0") != 0;
    }());
    return enabled;
}

bool ggml_row_kernels_enabled(void) {
    return enabled_flag().load(std::memory_order_relaxed);
}

void ggml_row_kernels_set_enabled(bool enabled) {
    enabled_flag().store(enabled, std::memory_order_relaxed);
}

bool ggml_row_kernels_supports_type(enum ggml_type type) {
    return ggml_panel_supports_type(type);
}

bool ggml_row_kernels_supports_attention(void) {
    return ggml_fattn_rows_available();
}
