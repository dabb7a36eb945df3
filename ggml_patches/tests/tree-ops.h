// The operations of token trees through the public interface of ggml, for tests and the micro-benchmark.

#pragma once

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

// A graph on the CPU: build(ctx) makes its tensors and returns the last.
class computation {
public:
    template <typename F>
    explicit computation(F build) {
        ctx     = ggml_init({ ggml_tensor_overhead()*32 + ggml_graph_overhead(), nullptr, true });
        result  = build(ctx);
        graph   = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, result);
        backend = ggml_backend_cpu_init();
        buffer  = ggml_backend_alloc_ctx_tensors(ctx, backend);
    }

    ~computation() {
        ggml_backend_buffer_free(buffer);
        ggml_backend_free(backend);
        ggml_free(ctx);
    }

    computation(const computation &) = delete;
    computation & operator=(const computation &) = delete;

    // plain: the loops that the fast ones are compared with
    void compute(int n_threads, bool plain = false) {
        ggml_backend_cpu_set_n_threads(backend, n_threads);
        ggml_backend_cpu_set_use_ref(backend, plain);
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            abort();
        }
    }

    template <typename T>
    std::vector<T> get() const {
        std::vector<T> data(ggml_nbytes(result)/sizeof(T));
        ggml_backend_tensor_get(result, data.data(), 0, ggml_nbytes(result));
        return data;
    }

    // overwrites the result, so that what is left out shows
    void spoil() { ggml_backend_tensor_memset(result, 0x5a, 0, ggml_nbytes(result)); }

    ggml_tensor * result;

private:
    ggml_context *        ctx;
    ggml_cgraph *         graph;
    ggml_backend_t        backend;
    ggml_backend_buffer_t buffer;
};

// Trees above their prefixes in one cache, and some of their nodes as the tokens of a step.
struct forest {
    struct cell  { int owner = -1, node = -1, pos = -1; };
    struct token { int owner = -1, pos = 0; std::vector<bool> sees; };

    std::vector<cell>  cells;
    std::vector<token> tokens;
    int                n_words = 1;

    // n_owners trees of n_nodes nodes; the rest of the cells holds their prefixes in turns of `run` cells, and every `hole`-th is empty
    forest(int n_kv, int n_tokens, int n_owners, int n_nodes, int run, int hole, std::mt19937 & rng) : cells(n_kv), tokens(n_tokens) {
        n_nodes = std::min(n_nodes, n_kv/n_owners);
        n_words = (std::max(n_nodes, 1) + 31)/32;

        const int n_below = n_kv - n_owners*n_nodes;
        std::vector<int> length(n_owners);
        for (int j = 0; j < n_below; ++j) {
            const int owner = j/run % n_owners;
            if (j % hole != hole - 1) {
                cells[j].owner = owner;
                cells[j].pos   = length[owner]++;
            }
        }
        // mostly behind the prefixes, as in a cache that grows, and some in holes
        std::vector<std::vector<token>> nodes(n_owners, std::vector<token>(n_nodes));
        for (int o = 0; o < n_owners; ++o) {
            for (int g = 0; g < n_nodes; ++g) {
                const int parent = g == 0 ? -1 : (int) (rng() % g);
                token & node = nodes[o][g];
                if (parent >= 0) {
                    node = nodes[o][parent];
                }
                node.owner = o;
                node.pos   = parent >= 0 ? node.pos + 1 : length[o];
                node.sees.resize(32*n_words);
                node.sees[g] = true;

                cell & at = cells[n_below + o*n_nodes + g];
                at.owner = o;
                at.node  = g;
                at.pos   = node.pos;
                std::swap(at, cells[rng() % 8 ? n_below + o*n_nodes + g : rng() % n_kv]);
            }
        }
        for (int i = 0; i < n_tokens; ++i) {
            const int o = (int) ((int64_t) i*n_owners/n_tokens);
            if (n_nodes > 0) {
                tokens[i] = nodes[o][rng() % n_nodes];
            } else {
                tokens[i].owner = o;
                tokens[i].pos   = length[o];
                tokens[i].sees.resize(32*n_words);
            }
        }
    }

    std::vector<int32_t> packed_cells() const {
        std::vector<int32_t> packed;
        for (const cell & c : cells) {
            packed.push_back(c.owner < 0 ? -1 : GGML_TREE_CELL(c.owner, c.node));
        }
        return packed;
    }

    std::vector<int32_t> positions() const {
        std::vector<int32_t> packed;
        for (const cell & c : cells) {
            packed.push_back(c.pos);
        }
        return packed;
    }

    std::vector<int32_t> packed_tokens() const {
        std::vector<int32_t> packed;
        for (const token & t : tokens) {
            packed.push_back(t.owner);
            packed.push_back(t.pos);
            for (int w = 0; w < n_words; ++w) {
                uint32_t bits = 0;
                for (int b = 0; b < 32; ++b) {
                    bits |= (uint32_t) t.sees[32*w + b] << b;
                }
                packed.push_back((int32_t) bits);
            }
        }
        return packed;
    }
};

inline void set(ggml_tensor * t, const std::vector<int32_t> & data) {
    ggml_backend_tensor_set(t, data.data(), 0, data.size()*sizeof(int32_t));
}

// The mask of a forest. window is in positions; unused without one.
class tree_mask : public computation {
public:
    tree_mask(const forest & f, ggml_type type, ggml_tree_window window = GGML_TREE_WINDOW_NONE, int n_window = 0) :
        computation([&](ggml_context * ctx) {
            ggml_tensor * cells  = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, (int64_t) f.cells.size());
            ggml_tensor * tokens = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2 + f.n_words, (int64_t) f.tokens.size());
            ggml_tensor * pos    = window ? ggml_new_tensor_1d(ctx, GGML_TYPE_I32, (int64_t) f.cells.size()) : nullptr;
            return ggml_tree_mask(ctx, cells, tokens, pos, type, window, n_window);
        }) {
        set(result->src[0], f.packed_cells());
        set(result->src[1], f.packed_tokens());
        if (window) {
            set(result->src[2], f.positions());
        }
    }
};

// The statistics of rows, `stride` entries apart.
class topk_stats : public computation {
public:
    topk_stats(int64_t n, int64_t n_rows, int64_t stride, int k) :
        computation([&](ggml_context * ctx) {
            ggml_tensor * all = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, stride*(n_rows - 1) + n);
            return ggml_topk_stats(ctx, ggml_view_2d(ctx, all, n, n_rows, stride*sizeof(float), 0), k);
        }) {}

    void set_row(int64_t i, const std::vector<float> & row) {
        const ggml_tensor * a = result->src[0];
        ggml_backend_tensor_set(a->view_src, row.data(), i*a->nb[1], row.size()*sizeof(float));
    }
};
