#pragma once

#include <cstdint>
#include <vector>

// The nodes of one depth that have children: the rows that one head computes.
struct llama_heads_level {
    struct child {
        int32_t node;
        int32_t rank;     // of its token among the best ones of the row
        int32_t next_row; // its row in the next level, -1: it has no children
    };

    struct row {
        int32_t            node;
        int32_t            above; // row of its parent in the level before
        int32_t            width; // best tokens that its children need
        std::vector<child> children;
    };

    std::vector<row> rows;

    int32_t greedy = -1; // row on the path of rank 0, -1: this path has ended

    int32_t width()       const; // the largest
    int32_t n_next_rows() const;
};

// The levels of a static tree, the root's first. Throws std::runtime_error when parents and ranks make none: see llama-heads.h.
std::vector<llama_heads_level> llama_heads_levels(int32_t n_nodes, const int32_t * parents, const int32_t * ranks);
