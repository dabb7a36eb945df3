#pragma once

#include "llama-cparams.h"

#include "ggml-backend.h"

#include <cstdint>

class llm_graph_result;

// which operations for token trees a context uses. an operation is used only where a graph that was split over the devices
// has shown that it runs beside its operands: else what it saves would be lost in copies between devices
struct llama_tree_ops {
    enum choice {
        NEVER,
        ALWAYS,        // wherever it runs beside its operands
        WHERE_IT_PAYS, // not on the CPU, if that is no faster there
    };

    const choice want_mask;
    const choice want_stats;

    bool probed = false;
    bool mask   = false; // use GGML_OP_TREE_MASK in place of masks made on the host
    bool stats  = false; // use GGML_OP_TOPK_STATS in the graph, if k > 0

    int32_t k = 0; // see llama_tree_set_stats()

    // by the last tree decode
    bool used_mask  = false;
    bool used_stats = false;

    // what tree decodes and their results moved between the host and devices with memory of their own
    int64_t n_bytes_sent    = 0;
    int64_t n_bytes_fetched = 0;

    llama_tree_ops(); // choices are read from the environment

    // res: a split graph with the operations
    void probe(ggml_backend_sched_t sched, const llm_graph_result & res);

    void count_fetched(const ggml_tensor * t, size_t n_bytes);

    static bool is_on_host(const ggml_tensor * t);

    // what each computation of an allocated graph copies to devices
    static size_t input_bytes(ggml_cgraph * gf);
};

// what a decode asks of its graphs, other graphs should not get, however the decode ends
struct llama_tree_ops_scope {
    llama_cparams & cparams;

    explicit llama_tree_ops_scope(llama_cparams & cparams) : cparams(cparams) {
    }

    ~llama_tree_ops_scope() {
        cparams.tree_mask  = false;
        cparams.tree_stats = 0;
    }
};
