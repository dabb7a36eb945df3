// the operations of token trees on the CPU, against what they mean, in double precision where they round

#include "check.h"
#include "tree-ops.h"

#include "llama-row-stats.cpp" // internal, not exported everywhere: a row on the host has the same statistics

#include <cmath>
#include <cstring>
#include <numeric>

static bool sees(const forest::token & token, const forest::cell & cell, ggml_tree_window window, int n_window) {
    if (cell.owner < 0 || cell.owner != token.owner || (cell.node >= 0 && !token.sees[cell.node])) {
        return false;
    }
    return window == GGML_TREE_WINDOW_NONE || (window == GGML_TREE_WINDOW_SLIDING ?
        cell.pos > token.pos - n_window : cell.pos/n_window >= token.pos/n_window);
}

template <typename T>
static void check_mask_of(const forest & f, ggml_type type, T hidden, ggml_tree_window window, int n_window) {
    const size_t n_kv = f.cells.size();

    tree_mask op(f, type, window, n_window);
    for (int n_threads : { 1, 2, 5 }) {
        for (bool plain : { false, true }) {
            op.spoil();
            op.compute(n_threads, plain);
            const auto mask = op.get<T>();
            for (size_t i = 0; i < f.tokens.size(); ++i) {
                for (size_t j = 0; j < n_kv; ++j) {
                    CHECK(mask[i*n_kv + j] == (sees(f.tokens[i], f.cells[j], window, n_window) ? 0 : hidden));
                }
            }
        }
    }
}

static void check_mask(const forest & f) {
    const auto both = [&](ggml_tree_window window, int n_window) {
        check_mask_of<uint16_t>(f, GGML_TYPE_F16, 0xfc00,     window, n_window);
        check_mask_of<uint32_t>(f, GGML_TYPE_F32, 0xff800000, window, n_window);
    };
    both(GGML_TREE_WINDOW_NONE, 0);
    for (int n_window : { 1, 7, 128, 1 << 30 }) {
        both(GGML_TREE_WINDOW_SLIDING, n_window);
        both(GGML_TREE_WINDOW_CHUNKED, n_window);
    }
}

static void check_masks(std::mt19937 & rng) {
    for (int n_kv : { 1, 2, 31, 32, 33, 255, 256, 257, 1000, 2048, 2049, 4500 }) {
        for (int n_tokens : { 1, 2, 9, 40 }) {
            const int n_owners = std::min(n_kv, 1 + (int) (rng() % 8));
            check_mask(forest(n_kv, n_tokens, n_owners, (int) (rng() % 70), 1 + (int) (rng() % 100), 2 + (int) (rng() % 100), rng));
        }
    }
    check_mask(forest(512,  64, 1, 256, 512, 1 << 30, rng)); // as many nodes as trees have
    check_mask(forest(256,  16, 1, 256, 512, 1 << 30, rng)); // nothing but nodes
    check_mask(forest(300,  16, 1,   0, 512, 1 << 30, rng)); // no node
    check_mask(forest(4096,  1, 1,   1, 512, 3,       rng));

    forest strangers(600, 12, 3, 20, 50, 10, rng);
    strangers.tokens[3].owner = -1;                        // pads a batch: sees nothing
    strangers.tokens[5].owner = GGML_TREE_MASK_MAX_OWNERS; // without cells
    strangers.cells[7] = { GGML_TREE_MASK_MAX_OWNERS, -1, 5 };
    check_mask(strangers);
}

static std::vector<int32_t> sorted_ids(const std::vector<float> & row) {
    std::vector<int32_t> ids(row.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto key = [&](int32_t i) { return std::isnan(row[i]) ? -INFINITY : row[i]; };
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
    return ids;
}

struct shares {
    double max = -INFINITY;
    double lse;
    double entropy = 0.0;

    explicit shares(const std::vector<float> & row) {
        for (float x : row) {
            max = std::isnan(x) ? max : std::max(max, (double) x);
        }
        double e  = 0.0;
        double xe = 0.0;
        for (float x : row) {
            if (!std::isnan(x) && x > -INFINITY) {
                e  += std::exp(x - max);
                xe += (x - max)*std::exp(x - max);
            }
        }
        lse = max;
        if (std::isfinite(max)) {
            lse    += std::log(e);
            entropy = std::log(e) - xe/e;
        }
    }
};

static bool near(double a, double b) {
    return a == b || std::abs(a - b) <= 1e-6*(1.0 + std::abs(b));
}

static void check_result(const float * result, const std::vector<float> & row, int k, const std::vector<int32_t> & sorted) {
    const float * logits = result + k;

    std::vector<int32_t> ids(k);
    memcpy(ids.data(), result, k*sizeof(int32_t));
    for (int j = 0; j < k; ++j) {
        CHECK(ids[j] == sorted[j]);
        CHECK(logits[j] == (std::isnan(row[ids[j]]) ? -INFINITY : row[ids[j]]));
    }
    const shares expected(row);
    CHECK(near(result[2*k],     expected.lse));
    CHECK(near(result[2*k + 1], expected.entropy));

    // as on the host
    std::vector<llama_token> host_ids(k);
    std::vector<float>       host_logits(k);
    llama_row_top_k(row.data(), (int32_t) row.size(), k, host_ids.data(), host_logits.data());
    CHECK(memcmp(host_ids.data(),    ids.data(), k*sizeof(int32_t)) == 0);
    CHECK(memcmp(host_logits.data(), logits,     k*sizeof(float))   == 0);
    if (std::isfinite(logits[0])) {
        float lse;
        float entropy;
        llama_row_lse(row.data(), (int32_t) row.size(), logits[0], &lse, &entropy);
        CHECK(near(result[2*k],     lse));
        CHECK(near(result[2*k + 1], entropy));
    }
}

static void check_rows(const std::vector<std::vector<float>> & rows, int64_t stride) {
    const int64_t n = (int64_t) rows[0].size();

    std::vector<std::vector<int32_t>> sorted;
    for (const auto & row : rows) {
        sorted.push_back(sorted_ids(row));
    }
    for (int k : { 1, 2, 7, 16, GGML_TOPK_STATS_MAX_K }) {
        if (k > n) {
            continue;
        }
        topk_stats op(n, (int64_t) rows.size(), stride, k);
        for (size_t i = 0; i < rows.size(); ++i) {
            op.set_row((int64_t) i, rows[i]);
        }
        std::vector<float> first;
        for (int n_threads : { 1, 3 }) {
            op.spoil();
            op.compute(n_threads);
            const auto result = op.get<float>();
            for (size_t i = 0; i < rows.size(); ++i) {
                check_result(&result[i*(2*k + 2)], rows[i], k, sorted[i]);
            }
            // the same bits whoever computes a row
            first = n_threads == 1 ? result : first;
            CHECK(memcmp(first.data(), result.data(), first.size()*sizeof(float)) == 0);
        }
        op.spoil();
        op.compute(1, true);
        const auto plain = op.get<float>();
        for (size_t i = 0; i < rows.size(); ++i) {
            check_result(&plain[i*(2*k + 2)], rows[i], k, sorted[i]);
        }
    }
}

// rows that models have, and those that they do not
static std::vector<std::vector<float>> rows_of(int n, std::mt19937 & rng) {
    std::normal_distribution<float> normal(0.0f, 4.0f);

    std::vector<std::vector<float>> rows(12, std::vector<float>(n));
    for (auto & row : rows) {
        for (auto & x : row) {
            x = normal(rng);
        }
    }
    for (auto & x : rows[1]) {
        x = std::round(x);                                // ties everywhere
    }
    for (int i = 0; i < n; ++i) {
        rows[2][i] = i % 3 ? -INFINITY : rows[2][i];      // masked entries
        rows[3][i] = i == n/2 ? 1.0f : -INFINITY;         // all but one, as a grammar does
        rows[4][i] = i % 7 == 3 ? NAN : rows[4][i];
        rows[5][i] = 2.5f;                                // flat: entropy ln(n)
        rows[6][i] += i == n/2 ? 300.0f : 0.0f;           // certain: entropy 0
        rows[7][i] = 1e-3f*(float) i;                     // the best come last
        rows[8][i] = -1e-3f*(float) i;
        rows[9][i] = -INFINITY;
        rows[10][i] = NAN;
        rows[11][i] = 1e30f*rows[11][i];
    }
    return rows;
}

static void check_stats(std::mt19937 & rng) {
    for (int n : { 1, 2, 3, 15, 63, 64, 65, 129, 1000, 4095, 4096, 4097, 49152, 152064 }) {
        const auto rows = rows_of(n, rng);
        check_rows(rows, n);
        check_rows({ rows[0], rows[1], rows[4] }, n + 5);
        check_rows({ rows[2] }, n);
    }
}

int main() {
    std::mt19937 rng(1);
    check_masks(rng);
    check_stats(rng);
    printf("test-tree-ops: ok\n");
    return 0;
}
