// How fast the operations of token trees are on the CPU, next to what they replace.
//
//   bench-tree-ops [threads]
//
// Prints lower quartiles of interleaved rounds in milliseconds. Masks: the loop of llama_kv_cache::set_input_kq_mask with its tree
// pass, on an array of cells like its own, and without this pass, as llama.cpp has it, for a tree whose leaves are sequences; a map of
// the cells for the operation is not counted. Statistics: llama_row_top_k and llama_row_lse for one row after the other, on one
// thread, and a graph of operations that llama.cpp has anyway.

#include "tree-ops.h"

#include "llama-row-stats.h" // internal, not exported everywhere

#include <bitset>
#include <chrono>
#include <cstdio>
#include <functional>
#include <unordered_map>

using clock_type = std::chrono::steady_clock;

static std::vector<double> quartiles(const std::vector<std::function<void()>> & sides, int n_rounds) {
    std::vector<std::vector<double>> times(sides.size());
    for (int round = 0; round <= n_rounds; ++round) {
        for (size_t i = 0; i < sides.size(); ++i) {
            const auto start = clock_type::now();
            sides[i]();
            if (round > 0) {
                times[i].push_back(std::chrono::duration<double, std::milli>(clock_type::now() - start).count());
            }
        }
    }
    std::vector<double> result;
    for (auto & side : times) {
        std::sort(side.begin(), side.end());
        result.push_back(side[side.size()/4]);
    }
    return result;
}

// what llama_kv_cache does for a causal mask of F16, without a window or with a sliding one
class host_mask {
public:
    host_mask(const forest & f, int n_window) : f(f), n_window(n_window), pos(f.positions()), seq(f.cells.size()) {
        for (size_t j = 0; j < f.cells.size(); ++j) {
            const auto & cell = f.cells[j];
            if (cell.owner < 0) {
                continue;
            }
            seq[j].set(cell.owner);
            if (cell.node >= 0) {
                auto & nodes = tree_cells[cell.owner];
                nodes.resize(std::max(nodes.size(), (size_t) cell.node + 1), -1);
                nodes[cell.node] = (int32_t) j;
            }
        }
        data.resize(f.cells.size()*f.tokens.size());
    }

    // of a tree as sequences: a cell is in those that `sequences` says
    host_mask(const forest & f, int n_window, std::vector<std::bitset<256>> sequences) :
        data(f.cells.size()*f.tokens.size()), f(f), n_window(n_window), pos(f.positions()), seq(std::move(sequences)) {}

    void build() {
        ordinary();
        for (size_t i = 0; !tree_cells.empty() && i < f.tokens.size(); ++i) {
            const auto & token = f.tokens[i];
            const auto & nodes = tree_cells.at(token.owner);
            for (size_t g = 0; g < nodes.size(); ++g) {
                if (nodes[g] >= 0 && !token.sees[g]) {
                    data[i*pos.size() + nodes[g]] = 0xfc00;
                }
            }
        }
    }

    std::vector<uint16_t> data;

private:
    // the first token of a sequence looks at every cell, the others copy its row and look at the cells near the tree again
    void ordinary() {
        const size_t n_kv = pos.size();

        std::unordered_map<int, size_t>                first_row;
        std::unordered_map<int, std::vector<uint32_t>> again;

        int pos_min[256];
        std::fill(pos_min, pos_min + 256, INT32_MAX);
        for (const auto & token : f.tokens) {
            pos_min[token.owner] = std::min(pos_min[token.owner], token.pos);
        }
        for (size_t i = 0; i < f.tokens.size(); ++i) {
            const auto & token = f.tokens[i];
            uint16_t *   row   = &data[i*n_kv];
            auto &       idxs  = again[token.owner];

            const bool prev = first_row.count(token.owner) != 0;
            if (prev) {
                const uint16_t * src = &data[first_row[token.owner]*n_kv];
                std::copy(src, src + n_kv, row);
            } else {
                idxs.reserve(f.tokens.size() + n_window + 32);
                first_row[token.owner] = i;
            }
            for (size_t jj = 0; jj < (prev ? idxs.size() : n_kv); ++jj) {
                const size_t j = prev ? idxs[jj] : jj;
                row[j] = 0xfc00;
                if (pos[j] == -1 || !seq[j].test(token.owner)) {
                    continue;
                }
                if (!prev && pos[j] + n_window + 32 >= pos_min[token.owner]) {
                    idxs.push_back((uint32_t) j);
                }
                if (pos[j] > token.pos || (n_window && token.pos - pos[j] >= n_window)) {
                    continue;
                }
                row[j] = 0;
            }
        }
    }

    const forest                                  f;
    const int                                     n_window;
    std::vector<int32_t>                          pos;
    std::vector<std::bitset<256>>                 seq;
    std::unordered_map<int, std::vector<int32_t>> tree_cells;
};

// the forest as llama.cpp can have it without trees: every leaf is a sequence, which holds its path and the prefix below it
static host_mask mask_of_leaves(forest f, int n_window) {
    const auto last_node = [](const std::vector<bool> & sees) { // parents come first
        return (int) (sees.rend() - std::find(sees.rbegin(), sees.rend(), true)) - 1;
    };

    // paths that are part of no other
    std::vector<forest::token> leaves;
    for (const auto & token : f.tokens) {
        const int  node  = last_node(token.sees);
        const auto below = [&](const forest::token & other) { return other.owner == token.owner && other.sees[node]; };
        const auto inner = [&](const forest::token & other) { return below(other) && other.sees != token.sees; };
        if (std::none_of(leaves.begin(), leaves.end(), below) && std::none_of(f.tokens.begin(), f.tokens.end(), inner)) {
            leaves.push_back(token);
        }
    }

    std::vector<std::bitset<256>> sequences(f.cells.size());
    for (size_t j = 0; j < f.cells.size(); ++j) {
        for (size_t s = 0; s < leaves.size(); ++s) {
            const auto & cell = f.cells[j];
            sequences[j][s] = cell.owner == leaves[s].owner && (cell.node < 0 || leaves[s].sees[cell.node]);
        }
    }
    for (auto & token : f.tokens) {
        const int  node = last_node(token.sees);
        const auto leaf = std::find_if(leaves.begin(), leaves.end(), [&](const forest::token & leaf) {
            return leaf.owner == token.owner && leaf.sees[node];
        });
        token.owner = (int) (leaf - leaves.begin());
    }
    return host_mask(f, n_window, sequences);
}

static bool measure_mask(const char * name, int n_kv, int n_tokens, int n_owners, int n_window, int n_threads) {
    std::mt19937 rng(1);
    const forest f(n_kv, n_tokens, n_owners, 64/n_owners, 1024, 1 << 30, rng);

    // a mask each: lines that another core wrote last take twice as long to write, and each way has its own split
    const auto window = n_window ? GGML_TREE_WINDOW_SLIDING : GGML_TREE_WINDOW_NONE;
    tree_mask  plain(f, GGML_TYPE_F16, window, n_window);
    tree_mask  op   (f, GGML_TYPE_F16, window, n_window);
    host_mask  host (f, n_window);
    host_mask  stock = mask_of_leaves(f, n_window);

    const auto t = quartiles({
        [&] { host.build(); },
        [&] { plain.compute(n_threads, true); },
        [&] { op.compute(n_threads); },
        [&] { stock.build(); },
    }, std::max(31, 20000000/(n_kv*n_tokens)));
    printf("TREE_MASK  %-36s llama.cpp %7.3f  host %7.3f  plain %7.3f  operation %7.3f  llama.cpp/operation %5.1f  host/operation %5.1f\n",
           name, t[3], t[0], t[1], t[2], t[3]/t[2], t[0]/t[2]);
    fflush(stdout);

    return host.data == op.get<uint16_t>() && stock.data == host.data;
}

// ids, logits, ln(sum(exp)) and entropy as good as the operations of llama.cpp can
static ggml_tensor * stock_stats(ggml_context * ctx, ggml_tensor * logits, int k) {
    const int64_t n    = logits->ne[0];
    const int64_t rows = logits->ne[1];

    ggml_tensor * ids   = ggml_top_k(ctx, logits, k); // in any order
    ggml_tensor * top   = ggml_get_rows(ctx, ggml_reshape_3d(ctx, logits, 1, n, rows), ids);
    ggml_tensor * order = ggml_argsort(ctx, ggml_reshape_2d(ctx, top, k, rows), GGML_SORT_ORDER_DESC);
    ggml_tensor * probs = ggml_soft_max(ctx, logits);
    ggml_tensor * p     = ggml_get_rows(ctx, ggml_reshape_3d(ctx, probs, 1, n, rows), ids);
    ggml_tensor * best  = ggml_get_rows(ctx, p, ggml_view_2d(ctx, order, 1, rows, order->nb[1], 0)); // lse = logit - ln(p)
    ggml_tensor * h     = ggml_sum_rows(ctx, ggml_mul(ctx, probs, ggml_log(ctx, probs)));
    return ggml_concat(ctx, ggml_reshape_1d(ctx, ggml_cont(ctx, best), rows), ggml_reshape_1d(ctx, h, rows), 0);
}

static void measure_stats(int64_t n, int64_t n_rows, int k, int n_threads) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> rows(n*n_rows);
    for (float & x : rows) {
        x = normal(rng);
    }
    topk_stats op(n, n_rows, n, k);
    ggml_tensor * logits = nullptr;
    computation stock([&](ggml_context * ctx) {
        logits = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n_rows);
        return stock_stats(ctx, logits, k);
    });
    for (int64_t i = 0; i < n_rows; ++i) {
        op.set_row(i, std::vector<float>(&rows[i*n], &rows[i*n] + n));
    }
    ggml_backend_tensor_set(logits, rows.data(), 0, rows.size()*sizeof(float));

    std::vector<llama_token> ids(k*n_rows);
    std::vector<float>       top(k*n_rows);
    std::vector<float>       lse(n_rows);
    std::vector<float>       entropy(n_rows);

    const auto t = quartiles({
        [&] {
            for (int64_t i = 0; i < n_rows; ++i) {
                llama_row_top_k(&rows[i*n], (int32_t) n, k, &ids[i*k], &top[i*k]);
                llama_row_lse  (&rows[i*n], (int32_t) n, top[i*k], &lse[i], &entropy[i]);
            }
        },
        [&] { op.compute(n_threads, true); },
        [&] { op.compute(n_threads); },
    }, 31);
    const double chain = quartiles({ [&] { stock.compute(n_threads); } }, 3)[0];
    printf("TOPK_STATS %3lld x %lld, k = %-3d  host %7.3f  stock operations %8.3f  plain %8.3f  operation %7.3f  host/operation %5.1f  stock/operation %5.1f\n",
           (long long) n_rows, (long long) n, k, t[0], chain, t[1], t[2], t[0]/t[2], chain/t[2]);
    fflush(stdout);
}

int main(int argc, char ** argv) {
    const int n_threads = argc > 1 ? atoi(argv[1]) : 2;
    if (n_threads < 1) {
        fprintf(stderr, "usage: bench-tree-ops [threads]\n");
        return 1;
    }
    printf("%d threads (host: one), milliseconds\n", n_threads);

    const bool same = measure_mask("512 x 8, one tree", 512, 8, 1, 0, n_threads)
        && measure_mask("4096 x 32, one tree",                 4096,  32, 1, 0,    n_threads)
        && measure_mask("32768 x 64, one tree",                32768, 64, 1, 0,    n_threads)
        && measure_mask("32768 x 64, one tree, window 4096",   32768, 64, 1, 4096, n_threads)
        && measure_mask("32768 x 64, eight trees",             32768, 64, 8, 0,    n_threads)
        && measure_mask("32768 x 64, eight trees, window 1024", 32768, 64, 8, 1024, n_threads);
    if (!same) {
        fprintf(stderr, "the masks differ\n");
        return 1;
    }
    measure_stats(152064,  1,  8, n_threads);
    measure_stats(152064, 32,  8, n_threads);
    measure_stats(152064, 32, 64, n_threads);
    measure_stats( 49152, 32,  8, n_threads);
    return 0;
}
