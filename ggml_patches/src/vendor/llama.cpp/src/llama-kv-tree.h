#pragma once

#include "llama.h"

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#define LLAMA_KV_TREE_MAX_NODES 256

// one open tree. its nodes are tokens of a single sequence that share positions with their siblings, so the sequence id
// and the position alone do not tell which cells a node may attend to: that is what the ancestor sets are for
struct llama_kv_tree {
    using node_set = std::bitset<LLAMA_KV_TREE_MAX_NODES>;

    llama_pos pos_root = 0; // position of a node of depth 0: the length of the sequence below the tree

    std::vector<int32_t>  parent;    // -1: child of the sequence
    std::vector<int32_t>  depth;
    std::vector<node_set> ancestors; // including the node itself

    int32_t n_nodes() const { return (int32_t) parent.size(); }

    llama_pos pos(int32_t node) const { return pos_root + depth[node]; }

    void push(int32_t p);
    void pop (int32_t n_keep);

    // true if the nodes lead from a child of the sequence downwards
    bool is_path(const int32_t * nodes, int32_t n) const;
};

// the open trees of a memory module, and the nodes that the batch in flight carries. the caches of one module share one
// instance: a tree is the same tree in all of them, only the cells differ
class llama_kv_trees {
public:
    bool empty() const { return trees.empty(); }

    bool is_open(llama_seq_id seq) const { return trees.count(seq) > 0; }

    llama_kv_tree * get(llama_seq_id seq);
    const llama_kv_tree * get(llama_seq_id seq) const;

    void open (llama_seq_id seq, llama_pos pos_root);
    void close(llama_seq_id seq);

    // nodes of the next batch: batch index -> node number
    void stage(std::vector<int32_t> nodes) { staged = std::move(nodes); }
    void unstage() { staged.clear(); }

    bool is_staged() const { return !staged.empty(); }

    int32_t staged_node(int32_t batch_idx) const { return staged.at(batch_idx); }

private:
    std::unordered_map<llama_seq_id, llama_kv_tree> trees;

    std::vector<int32_t> staged;
};
