#include "llama-packed-weights.h"

#include "llama-impl.h"

#include "llama-cpu-function.h"

llama_packed_weights::llama_packed_weights(const std::vector<std::pair<std::string, ggml_tensor *>> & tensors, const llama_mmaps & mappings) {
    const auto packed_size = cpu_function<size_t (*)(const ggml_tensor *)>("ggml_panel_packed_size");
    if (!packed_size) {
        return;
    }
    for (const auto & [name, tensor] : tensors) {
        if (!tensor->buffer || tensor->extra || !ggml_backend_buffer_is_host(tensor->buffer)) {
            continue;
        }
        for (const auto & mapping : mappings) {
            const char * begin = (const char *) mapping->addr();
            const char * data  = (const char *) tensor->data;
            const size_t size  = packed_size(tensor);
            if (data >= begin && data < begin + mapping->size() && size > 0) {
                weights.push_back({ tensor, mapping.get(), (size_t) (data - begin), size, nullptr });
                break;
            }
        }
    }
    allocate();
}

llama_packed_weights::~llama_packed_weights() {
    const auto packed_free = cpu_function<void (*)(ggml_tensor *, void *)>("ggml_panel_packed_free");
    for (auto & weight : weights) {
        packed_free(weight.tensor, weight.kept);
    }
}

void llama_packed_weights::allocate() {
    size_t size = 0;
    for (const auto & weight : weights) {
        size += weight.size;
    }
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    size_t available = 0;
    size_t total     = 0;
    ggml_backend_dev_memory(cpu, &available, &total);
    // pages of a file can leave memory when it gets scarce, packed weights cannot
    if (size > 0 && size <= total/4*3) {
        room.reset(ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(cpu), size + 64));
    }
    if (!room) {
        weights.clear(); // they are used as they are
        return;
    }
    const auto packed_new = cpu_function<void * (*)(ggml_tensor *, void *, void (*)(void *), void *)>("ggml_panel_packed_new");
    char * next = (char *) GGML_PAD((uintptr_t) ggml_backend_buffer_get_base(room.get()), 64);
    for (auto & weight : weights) {
        weight.kept = packed_new(weight.tensor, next, on_packed, &weight);
        next += weight.size;
    }
    LLAMA_LOG_INFO("%s: room for %zu packed weights, %.2f MiB\n", __func__, weights.size(), size/1024.0/1024.0);
}

void llama_packed_weights::on_packed(void * user) {
    const weight & w = *(const weight *) user;
    w.mapping->release(w.first, w.first + ggml_nbytes(w.tensor));
}
