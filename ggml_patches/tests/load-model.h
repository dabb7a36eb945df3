#pragma once

#include "check.h"

#include "llama.h"

// with so many layers on GPUs. 0: no GPU takes part, not even in the products of large batches
static llama_model * load_model(const char * path, int32_t n_gpu_layers) {
    ggml_backend_dev_t no_devices[] = { nullptr };

    auto params = llama_model_default_params();
    params.n_gpu_layers = n_gpu_layers;
    if (n_gpu_layers == 0) {
        params.devices = no_devices;
    }
    auto * model = llama_model_load_from_file(path, params);
    CHECK(model);
    return model;
}
