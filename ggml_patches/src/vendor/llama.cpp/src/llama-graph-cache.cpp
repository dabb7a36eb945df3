#include "llama-graph-cache.h"

#include "ggml-backend.h"

// each entry also holds some MiB of host memory for the graph and its scheduler
static constexpr int32_t max_entries = 48;

llama_graph_cache::entry * llama_graph_cache::find(const key & k) {
    for (auto it = entries.begin(); it != entries.end(); ++it) {
        if (it->k == k) {
            entries.splice(entries.begin(), entries, it);
            return &entries.front();
        }
    }
    return nullptr;
}

llama_graph_cache::entry * llama_graph_cache::insert(const key & k, ggml_backend_sched_ptr sched) {
    entries.emplace_front();
    entries.front().k           = k;
    entries.front().state.sched = std::move(sched);
    return &entries.front();
}

void llama_graph_cache::trim(size_t max_bytes, const std::vector<ggml_backend_t> & backends) {
    size_t  n_bytes = 0;
    int32_t n_kept  = 0;

    for (auto it = entries.begin(); it != entries.end();) {
        for (auto * backend : backends) {
            n_bytes += ggml_backend_sched_get_buffer_size(it->state.sched.get(), backend);
        }
        it = n_kept >= 2 && (n_bytes > max_bytes || n_kept >= max_entries) ? entries.erase(it) : std::next(it);
        n_kept++;
    }
}
