// The cases of TREE_MASK and TOPK_STATS, against loops as plain as their definition in ggml.h.

#include "../check.h"
#include "device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

static const float INF = std::numeric_limits<float>::infinity();

//
// masks
//

static int32_t tree_cell(int32_t owner, int32_t node) {
    return (int32_t) ((uint32_t) owner << 16) | (node + 1);
}

static bool reference_sees(const mask_shape & s, const int32_t * token, int32_t cell, int32_t pos) {
    if (cell < 0 || cell/65536 != token[0]) {
        return false;
    }
    const int32_t node = cell%65536 - 1;
    if (node >= 32*s.n_words || (node >= 0 && ((uint32_t) token[2 + node/32] >> (node%32)) % 2 == 0)) {
        return false;
    }
    if (s.window == 1) {
        return token[1] - pos < s.n_window;
    }
    return s.window == 2 ? pos >= token[1]/s.n_window*s.n_window : true;
}

// fills a mask of random trees of some owners, computes it `shift` bytes behind a multiple of 16, and compares it to the bit
static void check_mask(const mask_shape & s, int shift, std::mt19937 & random) {
    const auto below = [&](int n) { return (int32_t) (random() % (uint32_t) n); };

    std::vector<int32_t> cells(s.n_kv + 8), pos(s.n_kv + 8), tokens((size_t) s.n_tokens*(s.n_words + 2));
    int32_t * const cells_at = cells.data() + shift/4;
    int32_t * const pos_at   = pos.data()   + shift/4;

    for (int32_t j = 0; j < s.n_kv; ++j) {
        const int32_t owner = below(3)*0x3fff; // 0x7ffe is the largest
        cells_at[j] = below(8) == 0 ? -1 - below(1000) : tree_cell(owner, below(2) ? -1 : below(32*s.n_words + 9)); // some have no bit
        pos_at[j]   = below(300);
    }
    for (int32_t i = 0; i < s.n_tokens; ++i) {
        int32_t * token = tokens.data() + (size_t) i*(s.n_words + 2);
        token[0] = below(6) == 0 ? -1 : below(3)*0x3fff;
        token[1] = below(300);
        for (int32_t w = 0; w < s.n_words; ++w) {
            token[2 + w] = (int32_t) random();
        }
    }

    const size_t size = s.is_f16 ? 2 : 4;
    std::vector<uint8_t> dst((size_t) s.n_kv*s.n_tokens*size + 64, 0x5a);
    uint8_t * const dst_at = dst.data() + shift;
    device_tree_mask(s, cells_at, tokens.data(), s.window ? pos_at : nullptr, dst_at);

    for (int32_t i = 0; i < s.n_tokens; ++i) {
        for (int32_t j = 0; j < s.n_kv; ++j) {
            const bool     sees     = reference_sees(s, tokens.data() + (size_t) i*(s.n_words + 2), cells_at[j], pos_at[j]);
            const uint32_t expected = sees ? 0 : s.is_f16 ? 0xfc00 : 0xff800000;
            uint32_t       found    = 0;
            memcpy(&found, dst_at + ((size_t) i*s.n_kv + j)*size, size);
            CHECK(found == expected);
        }
    }
    for (size_t at = 0; at < dst.size(); ++at) {
        CHECK((at >= (size_t) shift && at < shift + (size_t) s.n_kv*s.n_tokens*size) || dst[at] == 0x5a);
    }
}

static void test_masks() {
    std::mt19937 random(1);

    for (int32_t n_kv : { 1, 3, 4, 255, 256, 1000, 1030 }) {
        for (int32_t n_tokens : { 1, 4, 7 }) {
            for (int32_t window : { 0, 1, 2 }) {
                for (bool is_f16 : { false, true }) {
                    for (int shift : { 0, 4, 8 }) {
                        check_mask({ n_kv, n_tokens, 1 + n_tokens%3, window, 100, is_f16 }, shift, random);
                    }
                }
            }
        }
    }
    check_mask({ 8192, 64, 2, 1, 128, true  }, 0, random);
    check_mask({ 512,  64, 8, 0, 0,   false }, 0, random);
    check_mask({ 64,   2,  1, 1, 0x7fffffff, true }, 0, random); // a window larger than any text
    check_mask({ 64,   2,  1, 2, 0x7fffffff, true }, 0, random);
}

//
// statistics
//

static float as_logit(float x) {
    return std::isnan(x) ? -INF : x;
}

static bool is_close(double found, double expected, double scale) {
    return found == expected || std::fabs(found - expected) <= 1e-5*std::max(std::fabs(expected), scale);
}

static void check_row(const float * row, int32_t n, int32_t k, const float * found) {
    std::vector<int32_t> ids(n);
    std::iota(ids.begin(), ids.end(), 0);
    std::partial_sort(ids.begin(), ids.begin() + k, ids.end(), [&](int32_t a, int32_t b) {
        return as_logit(row[a]) > as_logit(row[b]) || (as_logit(row[a]) == as_logit(row[b]) && a < b);
    });

    for (int32_t rank = 0; rank < k; ++rank) {
        int32_t id;
        memcpy(&id, found + rank, sizeof(id));
        CHECK(id == ids[rank]);
        const float expected = as_logit(row[id]);
        CHECK(memcmp(&found[k + rank], &expected, sizeof(float)) == 0);
    }

    const double max = as_logit(row[ids[0]]);
    if (std::isinf(max)) {
        CHECK(found[2*k] == (float) max && found[2*k + 1] == 0.0f);
        return;
    }
    // with the largest apart, so that small entropies are exact too
    double rest = 0.0, sum_xe = 0.0;
    for (int32_t id = 0; id < n; ++id) {
        const double x = as_logit(row[id]) - max;
        if (id != ids[0] && x > -INF) {
            rest   += std::exp(x);
            sum_xe += x*std::exp(x);
        }
    }
    CHECK(is_close(found[2*k],     max + std::log1p(rest),                    1.0)); // absolute where it is near 0
    CHECK(is_close(found[2*k + 1], std::log1p(rest) - sum_xe/(1.0 + rest), 1e-30));
}

// rows of one filling, `pad` floats between them, the first `shift` floats behind a multiple of 16 bytes
template <typename Fill>
static void check_rows(int32_t n, int32_t n_rows, int32_t k, int32_t shift, int32_t pad, Fill && fill) {
    const float          trap = 3e38f; // what a row must not read
    std::vector<float>   x((size_t) n_rows*(n + pad) + shift + 4, trap);
    std::vector<float>   dst((size_t) n_rows*(2*k + 2) + 4, 42.0f);
    for (int32_t i = 0; i < n_rows; ++i) {
        for (int32_t id = 0; id < n; ++id) {
            x[shift + (size_t) i*(n + pad) + id] = fill(i, id);
        }
    }
    device_topk_stats(x.data() + shift, (size_t) (n + pad)*sizeof(float), n, n_rows, k, dst.data());

    for (int32_t i = 0; i < n_rows; ++i) {
        check_row(x.data() + shift + (size_t) i*(n + pad), n, k, dst.data() + (size_t) i*(2*k + 2));
    }
    for (size_t i = dst.size() - 4; i < dst.size(); ++i) {
        CHECK(dst[i] == 42.0f);
    }
}

static void test_stats_of_any_size_and_place() {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0.0f, 4.0f);
    const auto fill = [&](int32_t, int32_t) { return normal(random); };

    for (int32_t n : { 1, 2, 3, 4, 5, 7, 9, 63, 64, 65, 1000, 1021, 4096, 5003, 32000 }) {
        for (int32_t k : { 1, 2, 5, 10, 40, 64 }) {
            if (k <= n) {
                check_rows(n, 2, k, n % 4, k % 4, fill);
            }
        }
    }
    for (int32_t shift = 0; shift < 4; ++shift) {
        for (int32_t pad = 0; pad < 4; ++pad) {
            check_rows(2048 + shift, 4, 16, shift, pad, fill);
        }
    }
    check_rows(152064, 2, 10, 0, 0, fill);
    check_rows(262144, 1, 64, 1, 0, fill);
}

static void test_stats_of_odd_logits() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 4.0f);
    const float nan = std::numeric_limits<float>::quiet_NaN();

    for (int32_t n : { 70, 3000, 32003 }) {
        for (int32_t k : { 1, 8, 64 }) {
            if (n == 32003 && k != 8) {
                continue; // rounds with every thread a coroutine take their time
            }
            check_rows(n, 1, k, 1, 0, [&](int32_t, int32_t)    { return 0.25f; });                            // all equal: the list overflows
            check_rows(n, 1, k, 2, 0, [&](int32_t, int32_t)    { return -INF; });
            check_rows(n, 1, k, 3, 0, [&](int32_t, int32_t id) { return id % 2 ? nan : -INF; });
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t)    { return (float) (random() % 5); });           // many ties
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t)    { return (float) (random() % 1000) / 100; });
            check_rows(n, 2, k, 0, 1, [&](int32_t, int32_t id) { return id % 3 ? normal(random) : random() % 2 ? nan : -INF; });
            check_rows(n, 1, k, 1, 0, [&](int32_t, int32_t id) { return id % 17 ? -INF : normal(random); });  // a grammar left some
            check_rows(n, 1, k, 1, 0, [&](int32_t, int32_t id) { return id == n/2 ? 3.0f : -INF; });          // one
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return id == n/3 ? INF : normal(random); });
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return id % 2 ? -0.0f : 0.0f; });            // equal, so by id
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return (id % 7 - 3)*1e-42f; });              // denormal
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return id % 1000 ? -3e38f : 3e38f; });
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return (float) id*0.001f; });                // ascending
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return (float) -id*0.001f; });
            // large ones a block's stride apart meet in a few threads
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return id % 1024 < 4 ? 10.0f + (float) (random() % 4) : normal(random) - 40.0f; });
            // an entropy far below a float's digits
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return id == n - 1 ? 30.0f : normal(random)*0.01f; });
            check_rows(n, 1, k, 0, 0, [&](int32_t, int32_t id) { return id == 5 ? 60.0f : 0.0f; });
        }
    }
}

// sums of many terms that all round alike
static void test_stats_of_flat_rows() {
    for (float x : { 0.0f, 1.0f / 3, -7.7f, 1000.1f }) {
        check_rows(152064, 1, 4, 0, 0, [&](int32_t, int32_t)    { return x; });
        check_rows(152064, 1, 4, 0, 0, [&](int32_t, int32_t id) { return id == 77 ? x + 0.1234567f : x; });
    }
}

int main() {
    test_masks();
    test_stats_of_any_size_and_place();
    test_stats_of_odd_logits();
    test_stats_of_flat_rows();
    return 0;
}
