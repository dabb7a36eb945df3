#pragma once

#include "ggml-backend.h"

// The CPU back end may be a module that is loaded at run time, so its functions are looked up by name.
template <typename F>
static F cpu_function(const char * name) {
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("CPU");
    return reg ? (F) ggml_backend_reg_get_proc_address(reg, name) : nullptr;
}
