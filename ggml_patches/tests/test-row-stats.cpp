// reductions of rows against a reference in double precision, with the rows that real models do not have

#include "check.h"

#include "llama-row-stats.cpp" // internal, not exported everywhere

#include <numeric>
#include <random>
#include <vector>

static void reference_top_k(const std::vector<float> & row, int k, std::vector<int> & ids) {
    ids.resize(row.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto key = [&](int i) { return std::isnan(row[i]) ? -INFINITY : row[i]; };
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return key(a) > key(b); });
    ids.resize(k);
}

static void check_row(const std::vector<float> & row) {
    const int n = (int) row.size();

    for (int k : { 1, 2, 7, 16, 127 }) {
        if (k > n) {
            continue;
        }
        std::vector<int>         expected;
        std::vector<llama_token> ids(k);
        std::vector<float>       logits(k);
        reference_top_k(row, k, expected);
        llama_row_top_k(row.data(), n, k, ids.data(), logits.data());
        for (int i = 0; i < k; ++i) {
            CHECK(ids[i] == expected[i]);
            CHECK(std::isnan(row[ids[i]]) || logits[i] == row[ids[i]]);
        }
    }

    double max = -INFINITY;
    for (float x : row) {
        max = std::isnan(x) ? max : std::max(max, (double) x);
    }
    double se = 0.0;
    double sxe = 0.0;
    for (float x : row) {
        if (!std::isnan(x) && !std::isinf(x)) {
            se  += std::exp(x - max);
            sxe += (x - max)*std::exp(x - max);
        }
    }

    float lse;
    float entropy;
    llama_row_lse(row.data(), n, (float) max, &lse, &entropy);
    CHECK(std::abs(lse - (max + std::log(se))) < 1e-5*(1.0 + std::abs(lse)));
    CHECK(std::abs(entropy - (std::log(se) - sxe/se)) < 2e-5*(1.0 + entropy));
}

int main() {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, 4.0f);

    for (int n : { 1, 2, 15, 16, 17, 63, 64, 65, 288, 1000, 4096, 4097, 49152, 151936 }) {
        std::vector<float> row(n);
        for (auto & x : row) {
            x = normal(rng);
        }
        check_row(row);

        for (auto & x : row) {
            x = std::round(x); // ties everywhere
        }
        check_row(row);

        for (int i = 0; i < n; i += 3) {
            row[i] = i + 1 == n ? row[i] : -INFINITY; // masked entries
        }
        check_row(row);

        if (n > 20) {
            row[11] = NAN;
            check_row(row);
        }

        for (auto & x : row) {
            x = 2.5f; // flat: entropy ln(n)
        }
        check_row(row);

        row[n/2] = 300.0f; // certain: entropy 0
        check_row(row);
    }

    printf("test-row-stats: ok\n");
    return 0;
}
