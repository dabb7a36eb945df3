#include "llama-kv-tree.h"

#include "ggml.h"

void llama_kv_tree::push(int32_t p) {
    const int32_t node = n_nodes();

    GGML_ASSERT(node < LLAMA_KV_TREE_MAX_NODES);
    GGML_ASSERT(p >= -1 && p < node);

    node_set set = p < 0 ? node_set() : ancestors[p];
    set.set(node);

    parent   .push_back(p);
    depth    .push_back(p < 0 ? 0 : depth[p] + 1);
    ancestors.push_back(set);
}

void llama_kv_tree::pop(int32_t n_keep) {
    parent   .resize(n_keep);
    depth    .resize(n_keep);
    ancestors.resize(n_keep);
}

bool llama_kv_tree::is_path(const int32_t * nodes, int32_t n) const {
    int32_t prev = -1;

    for (int32_t i = 0; i < n; ++i) {
        if (nodes[i] < 0 || nodes[i] >= n_nodes() || parent[nodes[i]] != prev) {
            return false;
        }
        prev = nodes[i];
    }

    return true;
}

llama_kv_tree * llama_kv_trees::get(llama_seq_id seq) {
    const auto it = trees.find(seq);
    return it == trees.end() ? nullptr : &it->second;
}

const llama_kv_tree * llama_kv_trees::get(llama_seq_id seq) const {
    const auto it = trees.find(seq);
    return it == trees.end() ? nullptr : &it->second;
}

void llama_kv_trees::open(llama_seq_id seq, llama_pos pos_root) {
    trees[seq] = {};
    trees[seq].pos_root = pos_root;
}

void llama_kv_trees::close(llama_seq_id seq) {
    trees.erase(seq);
}
