#pragma once

#include "llama-heads-file.h"

#include "llama.h"

#include "ggml-cpp.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct llama_model;

struct llama_heads_linear {
    ggml_tensor * weight = nullptr; // [n_in, n_out]
    ggml_tensor * bias   = nullptr; // [n_out], F32, nullptr: none
};

// The weights of draft heads on a device, as their graphs want them. Throws std::runtime_error.
//
// The first block of a grounded head is linear in its inputs before the activation, L [g; e_0; .. e_i] = L_g g + sum L_j e_j, and
// so is R. Each node carries the sums of its path for all deeper heads, and a child adds the products with its own embedding
// alone: one matrix a level holds the columns of L and R of all the heads that have that input.
class llama_heads_weights {
public:
    // host_ops: made for llama-heads-ops.h, else for operations of ggml alone, of which those of grounded heads want a table of embeddings
    llama_heads_weights(llama_heads_file & file, const llama_model & model, ggml_backend_dev_t dev, bool host_ops);
    llama_heads_weights(const llama_heads_weights &) = delete;
    llama_heads_weights & operator=(const llama_heads_weights &) = delete;

    size_t n_bytes() const { return buffer ? ggml_backend_buffer_get_size(buffer.get()) : 0; }

    // grounded heads: what level d adds to L u and R u of the heads from d on. [n_in, 2*n_embd*(n_heads - d)]: L and R of head d,
    // of head d + 1, .. The input of level 0 is [g; e_0], of the others the embedding of the node
    std::vector<ggml_tensor *> slots;
    ggml_tensor * first_bias = nullptr; // [2*n_embd*n_heads], in the order of slots[0]

    std::vector<std::vector<llama_heads_linear>> blocks; // [head][..], those of the form x + silu(W x + b)
    std::vector<llama_heads_linear>              outputs; // [head]

    ggml_tensor *        table = nullptr; // [n_embd, n_rows], embeddings of the tokens of the rows; for operations of ggml alone
    std::vector<int32_t> d2t;             // empty: row i is token i

private:
    struct packed_deleter {
        ggml_tensor * tensor;
        void operator()(void * packed) const;
    };
    struct weight {
        ggml_tensor *     tensor;
        std::vector<char> data; // until it is placed
        void *            room = nullptr; // of a packed one

        std::unique_ptr<void, packed_deleter> packed = nullptr;
    };

    weight & add(const std::string & name, ggml_type type, int64_t ne0, int64_t ne1);
    ggml_tensor * load(llama_heads_file & file, const std::string & name, int64_t ne0, int64_t ne1);
    void load_slots(llama_heads_file & file);
    void load_table(const llama_model & model, ggml_backend_dev_t dev);

    void place_on_device(ggml_backend_dev_t dev);
    void place_on_host  (ggml_backend_dev_t dev);

    ggml_context_ptr                     ctx;
    ggml_backend_buffer_ptr              buffer;
    std::deque<weight>                   weights;
    std::map<std::string, ggml_tensor *> loaded;
};

// a row of the model's table of input embeddings, [n_embd]
void llama_heads_embedding(const llama_model & model, llama_token token, float * out);

// have such a row, which nobody looked at for long, come from memory
void llama_heads_prefetch(const llama_model & model, llama_token token);
