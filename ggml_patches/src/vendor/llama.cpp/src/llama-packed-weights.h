#pragma once

#include "llama-mmap.h"

#include "ggml-cpp.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

// Room for the mapped weights of a model as the row kernels of the CPU want them (ggml-cpu/panel/panel-packed.h). It takes
// memory when a product fills it; the pages of the file that hold the same weights are let go then.
class llama_packed_weights {
public:
    // mappings outlive this; tensors that lie in none of them are left alone
    llama_packed_weights(const std::vector<std::pair<std::string, ggml_tensor *>> & tensors, const llama_mmaps & mappings);
    ~llama_packed_weights();

    llama_packed_weights(const llama_packed_weights &) = delete;
    llama_packed_weights & operator=(const llama_packed_weights &) = delete;

private:
    struct weight {
        ggml_tensor *      tensor;
        const llama_mmap * mapping;
        size_t             first; // in the file
        size_t             size;  // of the room
        void *             kept;
    };

    void allocate();
    static void on_packed(void * user);

    std::deque<weight>      weights;
    ggml_backend_buffer_ptr room;
};
