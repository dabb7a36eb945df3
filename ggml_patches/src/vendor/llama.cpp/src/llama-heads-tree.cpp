#include "llama-heads-tree.h"

#include "llama-impl.h"
#include "llama-tree.h"

#include <algorithm>
#include <stdexcept>

int32_t llama_heads_level::width() const {
    int32_t width = 0;
    for (const auto & row : rows) {
        width = std::max(width, row.width);
    }
    return width;
}

int32_t llama_heads_level::n_next_rows() const {
    int32_t n = 0;
    for (const auto & row : rows) {
        for (const auto & child : row.children) {
            n += child.next_row >= 0;
        }
    }
    return n;
}

static void check_tree(int32_t n_nodes, const int32_t * parents, const int32_t * ranks) {
    if (n_nodes < 1 || n_nodes > LLAMA_TREE_MAX_NODES || !parents || !ranks || parents[0] != -1) {
        throw std::runtime_error(format("a tree has 1 to %d nodes, of which the first is the root", LLAMA_TREE_MAX_NODES));
    }
    for (int32_t i = 1; i < n_nodes; ++i) {
        if (parents[i] < 0 || parents[i] >= i || ranks[i] < 0) {
            throw std::runtime_error(format("node %d has the parent %d and the rank %d", i, parents[i], ranks[i]));
        }
    }
}

std::vector<llama_heads_level> llama_heads_levels(int32_t n_nodes, const int32_t * parents, const int32_t * ranks) {
    check_tree(n_nodes, parents, ranks);

    std::vector<std::vector<int32_t>> children(n_nodes);
    for (int32_t i = 1; i < n_nodes; ++i) {
        children[parents[i]].push_back(i);
    }

    std::vector<llama_heads_level> levels;
    std::vector<int32_t> row_of(n_nodes, -1); // its row in its level
    std::vector<int32_t> depth (n_nodes, 0);
    std::vector<bool>    greedy(n_nodes, false);

    for (int32_t i = 0; i < n_nodes; ++i) {
        depth [i] = i == 0 ? 0 : depth[parents[i]] + 1;
        greedy[i] = i == 0 || (greedy[parents[i]] && ranks[i] == 0);
        if (children[i].empty()) {
            continue;
        }
        levels.resize(std::max<size_t>(levels.size(), depth[i] + 1));
        auto & level = levels[depth[i]];
        row_of[i] = (int32_t) level.rows.size();
        if (greedy[i]) {
            level.greedy = row_of[i];
        }
        level.rows.push_back({ i, i == 0 ? 0 : row_of[parents[i]], 0, {} });
    }
    for (auto & level : levels) {
        for (auto & row : level.rows) {
            for (const int32_t child : children[row.node]) {
                row.width = std::max(row.width, ranks[child] + 1);
                row.children.push_back({ child, ranks[child], row_of[child] });
            }
        }
    }
    return levels;
}
