#pragma once

#include "llama-heads-ops.h"
#include "llama-heads-tree.h"
#include "llama-heads-weights.h"

#include "ggml-cpp.h"

#include <cstdint>
#include <memory>
#include <vector>

struct llama_heads {
    const llama_model & model;
    llama_heads_spec    spec;
    ggml_backend_dev_t  dev;
    bool                host_ops; // graphs use llama-heads-ops.h, else operations of ggml alone

    std::unique_ptr<llama_heads_weights> weights;
};

// The graph of a static tree, built once and allocated. The constructor throws std::runtime_error.
struct llama_heads_plan {
    llama_heads_plan(const llama_heads & heads, int32_t n_nodes, const int32_t * parents, const int32_t * ranks);

    // [g; embedding of root], or g alone for heads that are not grounded
    void set_input(const float * hidden, llama_token root);

    // after the graph was computed: tokens, q and top1 of all nodes
    void read_results();

    const llama_heads & heads;

    std::vector<llama_heads_level> levels;
    ggml_cgraph *                  gf = nullptr; // nullptr: nothing is drafted

    // results
    std::vector<llama_token> tokens;
    std::vector<float>       q;
    std::vector<float>       top1;

private:
    // what the host reads of a level's graph, of operations of ggml alone
    struct outputs {
        ggml_tensor * ids; // [width, rows], rows of the vocabulary head, the best first
        ggml_tensor * p;   // [1, width, rows]
    };

    void build();
    ggml_tensor * build_sums  (size_t d, ggml_tensor * x, ggml_tensor * above);
    ggml_tensor * build_x     (ggml_tensor * sums);
    ggml_tensor * build_blocks(size_t d, ggml_tensor * x);
    ggml_tensor * build_pick  (size_t d, ggml_tensor * logits);
    ggml_tensor * indices(const std::vector<int32_t> & values);
    void check_support() const;
    void allocate();

    ggml_context_ptr        ctx;
    ggml_context_ptr        ctx_indices;
    ggml_backend_buffer_ptr buffer_indices;
    ggml_gallocr_ptr        alloc;
    ggml_tensor *           input = nullptr;
    std::vector<float>      input_data;

    std::vector<std::pair<ggml_tensor *, std::vector<int32_t>>> constants;
    std::vector<outputs>                outs;
    std::vector<llama_heads_host_level> host;
};
