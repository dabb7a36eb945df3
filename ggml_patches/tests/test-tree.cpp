// trees against plain decoding, through the C interface alone
//
// usage: test-tree model.gguf [n_gpu_layers]
//
// rows are compared bit by bit: the model must have weights whose CPU kernels give the same row for every batch size, at
// least two heads, and a context of at least 1024 tokens. with layers on a GPU, or with LLAMA_KV_TREE_IN_PLACE=1, accepted
// rows stay where they are, attention sums in another order, and rows are compared within a tolerance

#include "check.h"
#include "load-model.h"
#include "random-tree.h"

#include "llama-tree.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

struct fixture {
    llama_model * model;
    int32_t       n_vocab;
    bool          exact; // rows have the same bits as those of plain decoding, and cells are filled in order

    llama_context * make(uint32_t n_seq_max = 1, uint32_t n_ctx = 256, int32_t n_threads = 1) const {
        auto params = llama_context_default_params();
        params.n_ctx           = n_ctx;
        params.n_batch         = 256;
        params.n_ubatch        = 64;
        params.n_seq_max       = n_seq_max;
        params.kv_unified      = true;
        params.n_threads       = n_threads;
        params.n_threads_batch = n_threads;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        auto * ctx = llama_init_from_model(model, params);
        CHECK(ctx);
        return ctx;
    }

    // row of plain decoding after the last of these tokens, by llama_decode alone
    std::vector<float> plain_row(const std::vector<llama_token> & tokens) const {
        auto * ctx = make();
        for (auto token : tokens) {
            CHECK(llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0);
        }
        const float * row = llama_get_logits_ith(ctx, -1);
        std::vector<float> res(row, row + n_vocab);
        llama_free(ctx);
        return res;
    }

    bool same(const float * row, const std::vector<float> & expected) const {
        if (!row || exact) {
            return row && memcmp(row, expected.data(), n_vocab*sizeof(float)) == 0;
        }
        double error = 0.0;
        double power = 0.0;
        for (int32_t i = 0; i < n_vocab; ++i) {
            error += (row[i] - expected[i])*(row[i] - expected[i]);
            power += expected[i]*expected[i];
        }
        return error < 1e-4*power; // a node that sees a sibling, or another position, is off by a hundred times as much
    }
};

static void test_random_trees(const fixture & f) {
    for (int round = 0; round < 12; ++round) {
        auto * ctx = f.make();
        std::vector<llama_token> chain;

        for (int step = 0; step < 4; ++step) {
            tree t;
            CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
            CHECK(llama_tree_n_nodes(ctx, 0) == 0);

            for (int call = random_int(1, 3); call > 0; --call) {
                const int n_old = t.n();
                t.grow(random_int(1, 8), f.n_vocab);
                const int n_new = t.n() - n_old;
                CHECK(llama_tree_decode(ctx, n_new, &t.tokens[n_old], &t.parents[n_old], nullptr, nullptr) == LLAMA_TREE_OK);
                CHECK(llama_tree_n_nodes(ctx, 0) == t.n());

                const int i = random_int(0, n_new - 1);
                auto tokens = chain;
                for (auto node : t.path_to(n_old + i)) {
                    tokens.push_back(t.tokens[node]);
                }
                const auto expected = f.plain_row(tokens);
                CHECK(f.same(llama_tree_logits(ctx, i), expected));
                CHECK(f.same(llama_get_logits_ith(ctx, i), expected)); // the stock getter works on a tree as well
            }

            if (step == 2) {
                llama_tree_drop(ctx, 0);
            } else {
                const auto path = t.path_to(random_int(0, t.n() - 1));
                CHECK(llama_tree_accept(ctx, 0, path.data(), (int32_t) path.size()) == LLAMA_TREE_OK);
                for (auto node : path) {
                    chain.push_back(t.tokens[node]);
                }
            }

            CHECK(llama_tree_n_nodes(ctx, 0) == -1);
            CHECK(llama_memory_seq_pos_max(llama_get_memory(ctx), 0) == (llama_pos) chain.size() - 1);
            std::vector<int32_t> cells(256);
            CHECK(llama_tree_cells(ctx, 0, cells.data(), 256) == (int32_t) chain.size());
            for (size_t i = 0; f.exact && i < chain.size(); ++i) {
                CHECK(cells[i] == (int32_t) i);
            }
        }
        llama_free(ctx);
    }
}

// from 512 cells on, stock flash attention gives a single row another rounding than 2 to 63 rows. the patched one must not, as
// long as the model has as many heads as there are threads
static void test_long_context(const fixture & f, int32_t n_threads) {
    auto * ctx   = f.make(1, 1024, n_threads);
    auto * plain = f.make(1, 1024, n_threads);

    std::vector<llama_token> chain(600);
    for (auto & token : chain) {
        token = random_int(0, f.n_vocab - 1);
    }
    for (auto * each : { ctx, plain }) {
        for (int i = 0; i < 600; i += 200) {
            CHECK(llama_decode(each, llama_batch_get_one(chain.data() + i, 200)) == 0);
        }
    }

    for (int n : { 1, 2, 12, 40, 63 }) {
        tree t;
        t.grow(n, f.n_vocab);
        CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
        CHECK(llama_tree_decode(ctx, n, t.tokens.data(), t.parents.data(), nullptr, nullptr) == LLAMA_TREE_OK);

        for (int check = 0; check < 4; ++check) {
            const int i = random_int(0, n - 1);
            for (auto node : t.path_to(i)) {
                CHECK(llama_decode(plain, llama_batch_get_one(&t.tokens[node], 1)) == 0);
            }
            const float * row = llama_get_logits_ith(plain, -1);
            CHECK(f.same(llama_tree_logits(ctx, i), std::vector<float>(row, row + f.n_vocab)));
            CHECK(llama_memory_seq_rm(llama_get_memory(plain), 0, 600, -1));
        }
        llama_tree_drop(ctx, 0);
    }
    llama_free(plain);
    llama_free(ctx);
}

static void test_several_sequences(const fixture & f) {
    auto * ctx = f.make(3);

    const llama_token  tokens [] = { 5, 6, 7, 8, 9, 10, 11 };
    const llama_seq_id seqs   [] = { 0, 1, 2, 0, 1,  2,  0 };
    const int32_t      parents[] = { -1, -1, -1, 0, 0, 0, 0 };

    for (int s = 0; s < 3; ++s) {
        CHECK(llama_tree_begin(ctx, s) == LLAMA_TREE_OK);
    }
    CHECK(llama_tree_decode(ctx, 7, tokens, parents, seqs, nullptr) == LLAMA_TREE_OK);
    CHECK(f.same(llama_tree_logits(ctx, 3), f.plain_row({ 5,  8 })));
    CHECK(f.same(llama_tree_logits(ctx, 4), f.plain_row({ 6,  9 })));
    CHECK(f.same(llama_tree_logits(ctx, 5), f.plain_row({ 7, 10 })));
    CHECK(f.same(llama_tree_logits(ctx, 6), f.plain_row({ 5, 11 })));

    const int32_t path[] = { 0, 2 };
    CHECK(llama_tree_accept(ctx, 0, path, 2) == LLAMA_TREE_OK);
    CHECK(llama_tree_n_nodes(ctx, 1) == 2);
    llama_tree_drop(ctx, 1);
    llama_tree_drop(ctx, 2);
    llama_free(ctx);
}

static void test_chosen_outputs(const fixture & f) {
    auto * ctx = f.make();

    const llama_token tokens [] = { 5, 6, 7 };
    const int32_t     parents[] = { -1, 0, 0 };
    const int8_t      outputs[] = { 0, 0, 1 };

    CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
    CHECK(llama_tree_decode(ctx, 3, tokens, parents, nullptr, outputs) == LLAMA_TREE_OK);
    CHECK(llama_tree_logits(ctx, 0) == nullptr);
    CHECK(llama_tree_logits(ctx, 3) == nullptr);
    CHECK(f.same(llama_tree_logits(ctx, 2), f.plain_row({ 5, 7 })));
    CHECK(llama_tree_hidden(ctx, 2) != nullptr);

    const int32_t rows[] = { 1 };
    llama_token id;
    float logit;
    CHECK(llama_tree_stats(ctx, 1, rows, 1, &id, &logit, nullptr, nullptr) == LLAMA_TREE_INVALID);
    CHECK(llama_tree_stats(ctx, 1, rows, 17, &id, &logit, nullptr, nullptr) == LLAMA_TREE_INVALID);
    llama_free(ctx);
}

static void test_misuse(const fixture & f) {
    auto * ctx = f.make();

    const llama_token tokens [] = { 5, 6 };
    const int32_t     parents[] = { -1, 0 };
    const int32_t     bad    [] = { -1, 1 };
    const int32_t     path   [] = { 1 };

    CHECK(llama_localspec_abi() == LLAMA_LOCALSPEC_ABI);
    CHECK(llama_tree_unsupported(ctx) == nullptr);
    CHECK(llama_tree_decode(ctx, 2, tokens, parents, nullptr, nullptr) == LLAMA_TREE_INVALID); // none open
    CHECK(llama_tree_begin(ctx, 1) == LLAMA_TREE_INVALID);
    CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
    CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_INVALID);
    CHECK(llama_tree_decode(ctx, 2, tokens, bad, nullptr, nullptr) == LLAMA_TREE_INVALID);
    CHECK(llama_tree_decode(ctx, 0, tokens, parents, nullptr, nullptr) == LLAMA_TREE_INVALID);
    CHECK(llama_tree_n_nodes(ctx, 0) == 0);
    CHECK(llama_tree_decode(ctx, 2, tokens, parents, nullptr, nullptr) == LLAMA_TREE_OK);
    CHECK(llama_tree_accept(ctx, 0, path, 1) == LLAMA_TREE_INVALID);
    CHECK(llama_tree_n_nodes(ctx, 0) == 2);

    // an ordinary decode must not slip in between
    llama_token token = 7;
    CHECK(llama_decode(ctx, llama_batch_get_one(&token, 1)) == -1);
    llama_tree_drop(ctx, 0);
    CHECK(llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0);
    llama_free(ctx);
}

static void test_full_cache(const fixture & f) {
    auto * ctx = f.make();

    std::vector<llama_token> tokens(254, 9);
    CHECK(llama_decode(ctx, llama_batch_get_one(tokens.data(), 254)) == 0);

    const llama_token more   [] = { 5, 6, 7 };
    const int32_t     parents[] = { -1, 0, 1 };
    CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
    CHECK(llama_tree_decode(ctx, 3, more, parents, nullptr, nullptr) == LLAMA_TREE_FULL);
    CHECK(llama_tree_n_nodes(ctx, 0) == 0);
    CHECK(llama_tree_decode(ctx, 2, more, parents, nullptr, nullptr) == LLAMA_TREE_OK);

    const int32_t path[] = { 0, 1 };
    CHECK(llama_tree_accept(ctx, 0, path, 2) == LLAMA_TREE_OK);
    llama_free(ctx);
}

static void test_graphs_are_kept(const fixture & f) {
    auto * ctx = f.make();

    const auto decode = [&](int n) {
        tree t;
        t.grow(n, f.n_vocab);
        CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
        CHECK(llama_tree_decode(ctx, n, t.tokens.data(), t.parents.data(), nullptr, nullptr) == LLAMA_TREE_OK);
        llama_tree_drop(ctx, 0);
    };

    for (int n : { 1, 3, 8 }) {
        decode(n);
    }
    const int64_t n_builds = llama_tree_n_graph_builds(ctx);
    for (int i = 0; i < 30; ++i) {
        const int sizes[] = { 1, 3, 8 };
        decode(sizes[random_int(0, 2)]);
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
    const char *  in_place     = getenv("LLAMA_KV_TREE_IN_PLACE");

    fixture f;
    f.model = load_model(argv[1], n_gpu_layers);
    f.exact = n_gpu_layers == 0 && (!in_place || atoi(in_place) == 0);
    f.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(f.model));

    test_random_trees(f);
    test_long_context(f, 1);
    test_long_context(f, 2);
    test_several_sequences(f);
    test_chosen_outputs(f);
    test_misuse(f);
    test_full_cache(f);
    test_graphs_are_kept(f);

    llama_model_free(f.model);
    printf("test-tree: ok\n");
    return 0;
}
