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
    bool                host_ops;    // graphs use llama-heads-ops.h, else operations of ggml alone
    bool                stock_top_k; // TOPK_STATS is not used even where the device has it

    std::unique_ptr<llama_heads_weights> weights;
};

// The graph of a static tree, built once and allocated on the device of the heads, with all that it reads. Throws
// std::runtime_error, also when the device cannot compute all of it.
struct llama_heads_plan {
    // place: false leaves the graph without memory, for n_splits
    llama_heads_plan(const llama_heads & heads, int32_t n_nodes, const int32_t * parents, const int32_t * ranks, bool place = true);

    // [g; embedding of root], or g alone for heads that are not grounded
    void set_input(const float * hidden, llama_token root);

    // after the graph was computed: tokens, q and top1 of all nodes
    void read_results();

    // One more level is drafted: whether the next one is to be as well, by the rule of least_p in llama-heads.h. When not, what is
    // left of the results is blank.
    bool goes_on(float least_p);

    // bytes that these two copy
    int64_t n_bytes_sent()    const;
    int64_t n_bytes_fetched() const;

    // parts that ggml's scheduler makes of the graph when it chooses between the device and the CPU. The graph cannot be used
    // any more
    int32_t n_splits();

    const llama_heads & heads;

    std::vector<llama_heads_level> levels;
    ggml_cgraph *                  gf = nullptr; // nullptr: nothing is drafted
    std::vector<ggml_cgraph *>     level_graphs; // its parts, to be computed one after the other. empty but for host_ops

    // results
    std::vector<llama_token> tokens;
    std::vector<float>       q;
    std::vector<float>       top1;
    int32_t                  n_levels = 0;

private:
    // what the host reads of a level's graph, of operations of ggml alone
    struct outputs {
        ggml_tensor * ids; // [1, width, rows], rows of the vocabulary head, the best first; or all that TOPK_STATS tells
        ggml_tensor * p;   // [1, width, rows], nullptr: it follows from TOPK_STATS
    };

    void build();
    void add_level_graph(int first);
    ggml_tensor * first_rows  (ggml_tensor * weight, int64_t n_rows);
    ggml_tensor * build_sums  (size_t d, ggml_tensor * x, ggml_tensor * above);
    ggml_tensor * build_x     (ggml_tensor * sums);
    ggml_tensor * build_blocks(size_t d, ggml_tensor * x);
    ggml_tensor * build_pick  (size_t d, ggml_tensor * logits);
    ggml_tensor * build_next  (size_t d, ggml_tensor * ids, int64_t stride);
    outputs       build_stock_pick(ggml_tensor * logits, int64_t k);
    ggml_tensor * indices(const std::vector<int32_t> & values);
    void allocate();
    void add_results();
    void check_device() const;

    ggml_context_ptr        ctx;
    ggml_context_ptr        ctx_fixed; // what is not the graph's own: input, indices, results
    ggml_backend_buffer_ptr buffer_fixed;
    ggml_gallocr_ptr        alloc;
    ggml_tensor *           input   = nullptr;
    ggml_tensor *           results = nullptr; // all outputs, one after the other, so that one copy fetches them
    std::vector<float>      p; // of each node that was drafted, the product of q along its path
    std::vector<float>      input_data;
    std::vector<char>       results_data;

    std::vector<std::pair<ggml_tensor *, std::vector<int32_t>>> constants;
    std::vector<outputs>                outs;
    std::vector<llama_heads_host_level> host;
};
