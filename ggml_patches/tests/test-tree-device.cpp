// masks and row statistics that the graph of a tree decode makes, against those made on the host, through the C interface alone
//
// usage: test-tree-device model.gguf [n_gpu_layers]
//
// without layers on a device all are compared on the CPU, bit by bit. where the device lacks an operation, the test says so and
// compares the host with itself

#include "check.h"
#include "load-model.h"
#include "random-tree.h"

#include "llama-tree.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

struct fixture {
    llama_model * model;
    int32_t       n_vocab;
    bool          exact;

    llama_context * make(const char * choice, bool flash_attn) const {
        setenv("LLAMA_TREE_MASK",  choice, 1);
        setenv("LLAMA_TREE_STATS", choice, 1);

        auto params = llama_context_default_params();
        params.n_ctx           = 1024;
        params.n_batch         = 256;
        params.n_ubatch        = 128;
        params.n_threads       = 1;
        params.n_threads_batch = 1;
        params.flash_attn_type = flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        auto * ctx = llama_init_from_model(model, params);
        CHECK(ctx);
        CHECK(llama_tree_set_stats(ctx, 8) == LLAMA_TREE_OK);
        return ctx;
    }

    bool same(const float * a, const float * b) const {
        if (exact) {
            return memcmp(a, b, n_vocab*sizeof(float)) == 0;
        }
        double error = 0.0;
        double power = 0.0;
        for (int32_t i = 0; i < n_vocab; ++i) {
            error += (a[i] - b[i])*(a[i] - b[i]);
            power += a[i]*a[i];
        }
        return error < 1e-6*power;
    }
};

struct stats {
    std::vector<llama_token> ids;
    std::vector<float>       logits, lse, entropy;

    stats(llama_context * ctx, const std::vector<int32_t> & nodes, int32_t k) :
            ids(nodes.size()*k), logits(nodes.size()*k), lse(nodes.size()), entropy(nodes.size()) {
        CHECK(llama_tree_stats(ctx, (int32_t) nodes.size(), nodes.data(), k, ids.data(), logits.data(), lse.data(), entropy.data()) == LLAMA_TREE_OK);
    }
};

// the statistics of these nodes are those of their rows
static void check_stats(const fixture & f, llama_context * ctx, int32_t n) {
    std::vector<int32_t> nodes;
    for (int32_t i = n - 1; i >= 0; i -= random_int(1, 3)) {
        nodes.push_back(i);
    }
    const int64_t fetched = llama_tree_n_bytes_fetched(ctx);
    const stats   few(ctx, nodes, 8);
    if (llama_tree_stats_on_device(ctx)) {
        CHECK(llama_tree_n_bytes_fetched(ctx) - fetched <= (int64_t) (n*(2*8 + 2)*sizeof(float)));
    }
    const stats many(ctx, nodes, 12); // more than the graph computes: from the rows

    for (size_t r = 0; r < nodes.size(); ++r) {
        CHECK(std::equal(&few.ids   [8*r], &few.ids   [8*r] + 8, &many.ids   [12*r]));
        CHECK(std::equal(&few.logits[8*r], &few.logits[8*r] + 8, &many.logits[12*r]));

        const float * row = llama_tree_logits(ctx, nodes[r]);
        CHECK(row && row[few.ids[8*r]] == few.logits[8*r]);

        double sum = 0.0, sum_x = 0.0;
        for (int32_t id = 0; id < f.n_vocab; ++id) {
            const double x = (double) row[id] - few.logits[8*r];
            sum   += std::exp(x);
            sum_x += x*std::exp(x);
        }
        const double lse     = few.logits[8*r] + std::log(sum);
        const double entropy = std::log(sum) - sum_x/sum;
        for (const auto * s : { &few, &many }) {
            CHECK(std::abs(s->lse    [r] - lse)     < 1e-5*std::max(1.0, std::abs(lse)));
            CHECK(std::abs(s->entropy[r] - entropy) < 1e-4*std::max(1.0, entropy));
        }
    }
}

static void test_trees(const fixture & f, bool flash_attn) {
    llama_context * ctx[2] = { f.make("0", flash_attn), f.make("1", flash_attn) }; // host, graph

    std::vector<llama_token> prompt(300);
    for (auto & token : prompt) {
        token = random_int(0, f.n_vocab - 1);
    }
    for (auto * c : ctx) {
        CHECK(llama_decode(c, llama_batch_get_one(prompt.data(), 150)) == 0);
        CHECK(llama_decode(c, llama_batch_get_one(prompt.data() + 150, 150)) == 0);
    }

    for (int step = 0; step < 12; ++step) {
        tree t;
        for (auto * c : ctx) {
            CHECK(llama_tree_begin(c, 0) == LLAMA_TREE_OK);
        }
        for (int call = random_int(1, 3); call > 0; --call) {
            const int32_t n_old = t.n();
            const int32_t n_new = random_int(1, 24);
            t.grow(n_new, f.n_vocab);
            for (auto * c : ctx) {
                CHECK(llama_tree_decode(c, n_new, &t.tokens[n_old], &t.parents[n_old], nullptr, nullptr) == LLAMA_TREE_OK);
            }
            CHECK(!llama_tree_mask_on_device(ctx[0]) && !llama_tree_stats_on_device(ctx[0]));
            for (int32_t i = 0; i < n_new; ++i) {
                CHECK(f.same(llama_tree_logits(ctx[0], i), llama_tree_logits(ctx[1], i)));
            }
        }
        const auto path = t.path_to(random_int(0, t.n() - 1));
        for (auto * c : ctx) {
            if (step % 4 == 3) {
                llama_tree_drop(c, 0);
            } else {
                CHECK(llama_tree_accept(c, 0, path.data(), (int32_t) path.size()) == LLAMA_TREE_OK);
            }
        }
    }

    // what follows is an ordinary sequence
    for (auto * c : ctx) {
        CHECK(llama_decode(c, llama_batch_get_one(prompt.data(), 1)) == 0);
    }
    CHECK(f.same(llama_get_logits_ith(ctx[0], -1), llama_get_logits_ith(ctx[1], -1)));

    printf("test-tree-device: flash attention %s: mask %s, statistics %s\n", flash_attn ? "on" : "off",
            llama_tree_mask_on_device(ctx[1]) ? "by its operation" : "of the host",
            llama_tree_stats_on_device(ctx[1]) ? "by their operation" : "of the host");

    for (auto * c : ctx) {
        llama_free(c);
    }
}

static void test_statistics(const fixture & f) {
    for (const char * choice : { "0", "1" }) {
        auto * ctx = f.make(choice, true);
        for (int n : { 1, 7, 40 }) {
            tree t;
            t.grow(n, f.n_vocab);
            CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
            CHECK(llama_tree_decode(ctx, n, t.tokens.data(), t.parents.data(), nullptr, nullptr) == LLAMA_TREE_OK);
            check_stats(f, ctx, n);
            const auto path = t.path_to(n - 1);
            CHECK(llama_tree_accept(ctx, 0, path.data(), (int32_t) path.size()) == LLAMA_TREE_OK);
            check_stats(f, ctx, n); // the rows are still those of the last decode
        }
        llama_free(ctx);
    }
}

static void test_graphs_are_kept(const fixture & f) {
    auto * ctx = f.make("1", true);

    int64_t n_builds = 0;
    for (int i = 0; i < 20; ++i) {
        for (int n : { 4, 16 }) {
            tree t;
            t.grow(n, f.n_vocab);
            CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
            CHECK(llama_tree_decode(ctx, n, t.tokens.data(), t.parents.data(), nullptr, nullptr) == LLAMA_TREE_OK);
            const int32_t root = 0;
            CHECK(llama_tree_accept(ctx, 0, &root, 1) == LLAMA_TREE_OK);
        }
        if (i == 0) {
            n_builds = llama_tree_n_graph_builds(ctx);
        }
    }
    CHECK(llama_tree_n_graph_builds(ctx) == n_builds);
    llama_free(ctx);
}

int main(int argc, char ** argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s model.gguf [n_gpu_layers]\n", argv[0]);
        return 2;
    }

    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);

    const int32_t n_gpu_layers = argc > 2 ? atoi(argv[2]) : 0;

    fixture f;
    f.model   = load_model(argv[1], n_gpu_layers);
    f.exact   = n_gpu_layers == 0;
    f.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(f.model));

    test_trees(f, true);
    test_trees(f, false);
    test_statistics(f);
    test_graphs_are_kept(f);

    llama_model_free(f.model);
    printf("test-tree-device: ok\n");
    return 0;
}
