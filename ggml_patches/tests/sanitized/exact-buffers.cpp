// ggml_backend_alloc_ctx_tensors() with memory of its own for each tensor: where they share a buffer, AddressSanitizer lets a
// read past one of them pass, as it meets the next.

#include "ggml-backend-impl.h"

#include <vector>

extern "C" ggml_backend_buffer_t alloc_exactly(ggml_context * ctx, ggml_backend_t backend);

ggml_backend_buffer_t alloc_exactly(ggml_context * ctx, ggml_backend_t backend) {
    std::vector<ggml_backend_buffer_t> buffers;
    for (ggml_tensor * t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src) {
            ggml_backend_view_init(t);
        } else if (!t->data) {
            buffers.push_back(ggml_backend_alloc_buffer(backend, ggml_nbytes(t)));
            ggml_backend_tensor_alloc(buffers.back(), t, ggml_backend_buffer_get_base(buffers.back()));
        }
    }
    return ggml_backend_multi_buffer_alloc_buffer(buffers.data(), buffers.size());
}
