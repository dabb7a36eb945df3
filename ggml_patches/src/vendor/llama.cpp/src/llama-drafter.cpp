#include "llama-drafter.h"

#include "llama-drafter-core.h"

#include <algorithm>
#include <memory>
#include <new>

// nothing here throws but std::bad_alloc and std::length_error, and C cannot catch either
template <typename F>
static int32_t forgetting(llama_drafter * drafter, const F & action) {
    try {
        return action();
    } catch (...) {
        drafter->reset(); // the text may be torn
        return LLAMA_DRAFTER_FAILED;
    }
}

llama_drafter_corpus * llama_drafter_corpus_init(const llama_token * tokens, int32_t n) {
    if (n < 0 || (n > 0 && tokens == nullptr)) {
        return nullptr;
    }
    try {
        std::unique_ptr<llama_drafter_corpus> corpus(new llama_drafter_corpus);
        for (int32_t i = 0; i < n; i++) {
            corpus->append(tokens[i]);
        }
        return corpus.release();
    } catch (...) {
        return nullptr;
    }
}

void llama_drafter_corpus_free(llama_drafter_corpus * corpus) {
    delete corpus;
}

int64_t llama_drafter_corpus_n_bytes(const llama_drafter_corpus * corpus) {
    return (int64_t) corpus->n_bytes();
}

llama_drafter_pool * llama_drafter_pool_init(
        const llama_drafter_corpus * corpus,
                           int64_t   max_entries,
                      const double * rates,
                           int32_t   n_rates,
                      const double * factors,
                           int32_t   n_factors,
                            double   prior_weight,
                            double   max_trials) {
    if (rates == nullptr || n_rates != LLAMA_EVIDENCE_N_CODES || factors == nullptr || n_factors != 2*LLAMA_EVIDENCE_N_RIVALS) {
        return nullptr;
    }
    try {
        static const llama_drafter_corpus none;
        return new llama_drafter_pool {
            corpus != nullptr ? *corpus : none,
            llama_drafter_successor_pool(max_entries),
            llama_drafter_rates(rates, factors, prior_weight, max_trials) };
    } catch (...) {
        return nullptr;
    }
}

void llama_drafter_pool_clear(llama_drafter_pool * pool) {
    pool->successors.clear();
    pool->rates.reset();
}

void llama_drafter_pool_free(llama_drafter_pool * pool) {
    delete pool;
}

int64_t llama_drafter_pool_size(const llama_drafter_pool * pool) {
    return (int64_t) pool->successors.size();
}

int64_t llama_drafter_pool_n_bytes(const llama_drafter_pool * pool) {
    return (int64_t) (sizeof(*pool) + pool->successors.n_bytes() + pool->rates.n_bytes());
}

llama_drafter * llama_drafter_init(llama_drafter_pool * pool, int32_t width, int32_t max_text) {
    // of a text of 2^29 tokens the states can just be numbered
    if (pool == nullptr || width < 0 || max_text < 1 || max_text > 1 << 29) {
        return nullptr;
    }
    try {
        return new llama_drafter(*pool, width, max_text);
    } catch (...) {
        return nullptr;
    }
}

void llama_drafter_reset(llama_drafter * drafter) {
    drafter->reset();
}

void llama_drafter_free(llama_drafter * drafter) {
    delete drafter;
}

int32_t llama_drafter_n_text(const llama_drafter * drafter) {
    return (int32_t) drafter->tokens().size();
}

int64_t llama_drafter_n_bytes(const llama_drafter * drafter) {
    return (int64_t) drafter->n_bytes();
}

int32_t llama_drafter_extend(llama_drafter * drafter, const llama_token * tokens, int32_t n) {
    if (n < 0 || (n > 0 && tokens == nullptr)) {
        return LLAMA_DRAFTER_INVALID;
    }
    return forgetting(drafter, [&] {
        drafter->extend(tokens, n);
        return (int32_t) LLAMA_DRAFTER_OK;
    });
}

int32_t llama_drafter_propose(
        llama_drafter * drafter,
              int32_t   max_nodes,
               double   least_p,
              int32_t * parents,
          llama_token * tokens,
               double * p) {
    if (max_nodes < 1 || drafter->tokens().empty()) {
        return LLAMA_DRAFTER_INVALID;
    }
    return forgetting(drafter, [&] {
        const int32_t n = drafter->propose(max_nodes, least_p);
        for (int32_t i = 0; i < n; i++) {
            const auto & node = drafter->nodes()[i];
            parents[i] = node.parent;
            tokens[i]  = node.token;
            p[i]       = node.p;
        }
        return n;
    });
}

static bool is_valid(const llama_drafter::step & step, int32_t n_path) {
    const auto in_tree = [&](int32_t node) { return 0 <= node && node < step.n_nodes; };
    if (step.n_nodes < 1 || n_path < 0 || step.n_written < 1 || step.n_written - 1 > n_path) {
        return false;
    }
    for (int32_t i = 0; i < step.n_nodes; i++) {
        if ((step.parents[i] != -1 && !in_tree(step.parents[i])) || step.n_top[i] < 0 || step.n_top[i] > LLAMA_DRAFTER_TOP_K) {
            return false;
        }
    }
    return std::all_of(step.path, step.path + n_path, in_tree);
}

int32_t llama_drafter_learn(
            llama_drafter * drafter,
                  int32_t   n_nodes,
        const llama_token * tokens,
            const int32_t * parents,
            const int32_t * n_top,
        const llama_token * top_ids,
              const float * top_logits,
            const int32_t * path,
                  int32_t   n_path,
        const llama_token * written,
                  int32_t   n_written) {
    const llama_drafter::step step = {
        n_nodes, tokens, parents, n_top, top_ids, top_logits, path, written, n_written };
    if (!is_valid(step, n_path)) {
        return LLAMA_DRAFTER_INVALID;
    }
    return forgetting(drafter, [&] {
        drafter->learn(step);
        return (int32_t) LLAMA_DRAFTER_OK;
    });
}
