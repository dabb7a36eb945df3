// contexts that hold a prefix of any length, trees of random tokens below it, and the time of a step over one
#pragma once

#include "check.h"

#include "llama-tree.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

constexpr int32_t TOP_K = 8; // entries of each row's statistics that a step asks for

using context_ptr = std::unique_ptr<llama_context, void (*)(llama_context *)>;

// how a context makes masks and statistics; "" leaves it to the library
struct variant {
    const char * name;
    const char * mask;   // LLAMA_TREE_MASK
    const char * stats;  // LLAMA_TREE_STATS
};

class bench {
  public:
    bench(llama_model * model, int32_t n_threads) : model(model), n_threads(n_threads) {
        n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    }

    llama_token random_token() {
        return std::uniform_int_distribution<llama_token>(0, n_vocab - 1)(rng);
    }

    // a context of one sequence, with room for a prefix and the trees below it; null when memory does not suffice
    context_ptr make(int32_t n_prefix, const variant & v = { "", "", "" }) const {
        set_environment("LLAMA_TREE_MASK",  v.mask);
        set_environment("LLAMA_TREE_STATS", v.stats);
        auto params = llama_context_default_params();
        params.n_ctx           = n_prefix + 256;
        params.n_batch         = 512;
        params.n_ubatch        = 512;
        params.n_seq_max       = 1;
        params.kv_unified      = true;
        params.n_threads       = n_threads;
        params.n_threads_batch = n_threads;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        context_ptr ctx(llama_init_from_model(model, params), llama_free);
        if (ctx) {
            llama_tree_set_stats(ctx.get(), TOP_K);
        }
        return ctx;
    }

    // junk will do: what a step costs does not depend on what the prefix says
    void fill(llama_context * ctx, int32_t n_prefix) {
        std::vector<llama_token> tokens(512);
        for (int32_t done = 0; done < n_prefix; ) {
            const int32_t n = std::min<int32_t>(512, n_prefix - done);
            for (auto & token : tokens) {
                token = random_token();
            }
            CHECK(llama_decode(ctx, llama_batch_get_one(tokens.data(), n)) == 0);
            done += n;
        }
        llama_synchronize(ctx);
    }

    // the prefix of another context, which takes less time than computing it once more
    static void copy_prefix(llama_context * from, llama_context * to) {
        std::vector<uint8_t> state(llama_state_seq_get_size(from, 0));
        CHECK(llama_state_seq_get_data(from, state.data(), state.size(), 0) == state.size());
        CHECK(llama_state_seq_set_data(to, state.data(), state.size(), 0) != 0);
    }

    // decode a tree that was never seen before and read the statistics of all its rows, then drop it, or keep its root. returns
    // the milliseconds until the statistics were there
    double step(llama_context * ctx, int32_t n, bool accept_root = false) {
        std::vector<llama_token> tokens(n);
        std::vector<int32_t>     parents(n);
        for (int32_t i = 0; i < n; ++i) {
            tokens [i] = random_token();
            parents[i] = i == 0 ? -1 : std::uniform_int_distribution<int32_t>(std::max(0, i - 6), i - 1)(rng);
            nodes  [i] = i;
        }
        const auto start = std::chrono::steady_clock::now();
        CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
        CHECK(llama_tree_decode(ctx, n, tokens.data(), parents.data(), nullptr, nullptr) == LLAMA_TREE_OK);
        CHECK(llama_tree_stats(ctx, n, nodes, TOP_K, ids, logits, lse, entropy) == LLAMA_TREE_OK);
        const double ms = since(start);
        if (accept_root) {
            const int32_t root = 0;
            CHECK(llama_tree_accept(ctx, 0, &root, 1) == LLAMA_TREE_OK);
        } else {
            llama_tree_drop(ctx, 0);
        }
        return ms;
    }

    static double since(std::chrono::steady_clock::time_point start) {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    }

    llama_model * const model;
    const int32_t       n_threads;
    int32_t             n_vocab;
    std::mt19937        rng{ 42 };

  private:
    static void set_environment(const char * name, const char * value) {
#ifdef _WIN32
        _putenv_s(name, value);
#else
        if (*value) {
            setenv(name, value, 1);
        } else {
            unsetenv(name);
        }
#endif
    }

    int32_t     nodes  [LLAMA_TREE_MAX_NODES];
    llama_token ids    [LLAMA_TREE_MAX_NODES*TOP_K];
    float       logits [LLAMA_TREE_MAX_NODES*TOP_K];
    float       lse    [LLAMA_TREE_MAX_NODES];
    float       entropy[LLAMA_TREE_MAX_NODES];
};

// rounds of interleaved measurements: so many, or as many as the time allows, and at least five after two that are not counted
template <typename F>
static void rounds(int32_t n_rounds, double seconds, F measure) {
    const auto start = std::chrono::steady_clock::now();
    for (int32_t round = -2; round < n_rounds && (round < 5 || bench::since(start) < 1000*seconds); ++round) {
        measure(round >= 0);
    }
}
