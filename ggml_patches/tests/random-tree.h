#pragma once

#include "llama.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

// trees of random tokens and shape, the same in every run

static std::mt19937 rng(42);

static int random_int(int lo, int hi) { // inclusive
    return std::uniform_int_distribution<int>(lo, hi)(rng);
}

struct tree {
    std::vector<llama_token> tokens;
    std::vector<int32_t>     parents;

    int32_t n() const { return (int32_t) tokens.size(); }

    void grow(int n_new, int n_vocab) {
        for (int i = 0; i < n_new; ++i) {
            parents.push_back(n() == 0 ? -1 : random_int(std::max(-1, n() - 4), n() - 1));
            tokens .push_back(random_int(0, n_vocab - 1));
        }
    }

    std::vector<int32_t> path_to(int32_t node) const {
        std::vector<int32_t> path;
        for (; node >= 0; node = parents[node]) {
            path.push_back(node);
        }
        return { path.rbegin(), path.rend() };
    }
};
