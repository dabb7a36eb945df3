#pragma once

#include "llama-graph.h"

#include "ggml-cpp.h"

#include <array>
#include <cstdint>
#include <list>
#include <vector>

// a compute graph lives as long as the scheduler that allocated it is not reset, and a scheduler holds one graph. a
// context that alternates between a few batch sizes, as speculative decoding does, would rebuild on every change of
// size. so keep one scheduler, with its graphs, per size
// note: a cache with one stream per sequence still rebuilds when the sequences of a batch change

// what a context needs to run a graph again
struct llama_graph_state {
    ggml_backend_sched_ptr              sched;
    std::array<llm_graph_result_ptr, 2> gf_res_prev;
    llm_graph_result *                  gf_res_prev_active = nullptr;
};

class llama_graph_cache {
public:
    struct key {
        uint32_t n_tokens  = 0;
        uint32_t n_outputs = 0;
        bool     tree_mask = false; // made by an operation

        bool operator==(const key & other) const {
            return n_tokens == other.n_tokens && n_outputs == other.n_outputs && tree_mask == other.tree_mask;
        }
    };

    struct entry {
        key               k;
        llama_graph_state state;
    };

    // the entry of this size, or nullptr. it becomes the most recently used one
    entry * find(const key & k);

    entry * insert(const key & k, ggml_backend_sched_ptr sched);

    // drop the least recently used entries until few enough are left and their compute buffers take at most max_bytes;
    // keeps the two latest
    void trim(size_t max_bytes, const std::vector<ggml_backend_t> & backends);

    void clear() { entries.clear(); }

private:
    std::list<entry> entries; // most recently used first
};
