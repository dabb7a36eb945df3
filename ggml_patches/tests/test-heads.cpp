// draft heads through the C interface: all kinds of graphs, that none leaves its device, several threads, and files that are damaged
//
// usage: test-heads model.gguf heads.gguf [n_gpu_layers]
//
// heads.gguf is written: heads of random weights for the model. what they should draft is a matter of tests/engine/test_heads.py

#include "check.h"
#include "load-model.h"
#include "random-heads.h"

#include "llama-heads.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

struct drafted {
    std::vector<llama_token> tokens;
    std::vector<float>       q;
    std::vector<float>       top1;
    int32_t                  n_levels;
};

struct fixture {
    llama_model *      model;
    llama_model *      model_cpu; // the same, and where all its layers are on the CPU the very same
    std::vector<float> hidden;

    bool on_device() const { return model != model_cpu; }

    std::unique_ptr<llama_heads, void (*)(llama_heads *)> load(const char * path, uint32_t flags) const {
        return { llama_heads_load(model, path, flags), llama_heads_free };
    }

    llama_context * make(int32_t n_threads) const { return make(model, n_threads); }

    static llama_context * make(llama_model * model, int32_t n_threads) {
        auto params = llama_context_default_params();
        params.n_ctx     = 64;
        params.n_threads = n_threads;
        auto * ctx = llama_init_from_model(model, params);
        CHECK(ctx);
        return ctx;
    }

    drafted draft(llama_heads_plan * plan, llama_context * ctx, size_t n, llama_token root, float least_p = 0.0f) const {
        drafted d = { std::vector<llama_token>(n), std::vector<float>(n), std::vector<float>(N_HEADS), -1 };
        CHECK(llama_heads_draft(plan, ctx, hidden.data(), root, least_p, d.tokens.data(), d.q.data(), d.top1.data(), &d.n_levels)
            == LLAMA_HEADS_OK);
        return d;
    }
};

// one more tree, in which a row has `width` children: more than GGML_TOPK_STATS_MAX_K of them, say
static tree wide_tree(int32_t width) {
    tree t = tree::random();
    for (int32_t rank = 0; rank < width; ++rank) {
        t.parents.push_back(0);
        t.ranks  .push_back(rank);
    }
    return t;
}

static constexpr uint32_t HOST = 0, TOPK_STATS = LLAMA_HEADS_PORTABLE, STOCK = LLAMA_HEADS_PORTABLE | LLAMA_HEADS_STOCK_TOP_K;

// a draft copies its input, and of each row that is asked no more than the tokens that the level needs
static void check_copies(const llama_heads_plan * plan, const tree & t, bool host_ops, int32_t n_embd) {
    const bool copies = !host_ops && t.parents.size() > 1;
    CHECK(llama_heads_plan_n_bytes_sent(plan) == (copies ? 2*n_embd*(int64_t) sizeof(float) : 0));

    const int64_t n_rows = std::set<int32_t>(t.parents.begin(), t.parents.end()).size() - 1; // without the parent of the root
    const int64_t width  = *std::max_element(t.ranks.begin(), t.ranks.end()) + 1;
    const int64_t fetched = llama_heads_plan_n_bytes_fetched(plan);
    const int64_t padding = 2*N_HEADS*256;
    CHECK((fetched > 0) == copies);
    CHECK(fetched <= n_rows*(2*width + 2)*(int64_t) sizeof(float) + padding);
}

static void check_same(const drafted & found, const drafted & expected, float tolerance) {
    CHECK(found.tokens == expected.tokens);
    for (size_t i = 0; i < found.q.size(); ++i) {
        CHECK(std::abs(found.q[i] - expected.q[i]) <= tolerance*expected.q[i]);
    }
    for (size_t i = 0; i < found.top1.size(); ++i) {
        CHECK(std::abs(found.top1[i] - expected.top1[i]) <= tolerance*expected.top1[i]);
    }
}

// a device sums in another order: of two tokens that are nearly as likely it may prefer the other, and all below differs
static void check_against_cpu(const fixture & f, const char * path, const std::vector<tree> & trees, const std::vector<drafted> & found) {
    auto * heads = llama_heads_load(f.model_cpu, path, HOST);
    auto * ctx   = fixture::make(f.model_cpu, 2);
    CHECK(heads);

    size_t n_all = 0, n_same = 0;
    for (size_t i = 0; i < trees.size(); ++i) {
        const auto & t = trees[i];
        const size_t n = t.parents.size();
        auto * plan = llama_heads_plan_init(heads, (int32_t) n, t.parents.data(), t.ranks.data());
        CHECK(plan);
        const auto expected = f.draft(plan, ctx, n, 5 + (int32_t) n);
        llama_heads_plan_free(plan);
        for (size_t node = 1; node < n; ++node) {
            n_all++;
            n_same += found[i].tokens[node] == expected.tokens[node] && std::abs(found[i].q[node] - expected.q[node]) <= 0.02f*expected.q[node];
        }
    }
    CHECK(4*n_same > 3*n_all);

    llama_free(ctx);
    llama_heads_free(heads);
}

static void test_graphs_agree(const fixture & f, const char * path, ggml_type type) {
    std::vector<tree> trees;
    for (int i = 0; i < 20; ++i) {
        trees.push_back(tree::random());
    }
    for (const int32_t width : { GGML_TOPK_STATS_MAX_K, GGML_TOPK_STATS_MAX_K + 1, N_DRAFT }) {
        trees.push_back(wide_tree(width));
    }

    auto * ctx = f.make(2);
    std::vector<drafted> expected;
    for (const uint32_t flags : { HOST, TOPK_STATS, STOCK }) {
        auto heads = f.load(path, flags);
        CHECK(heads && llama_heads_n_heads(heads.get()) == N_HEADS);

        std::vector<drafted> found;
        for (const auto & t : trees) {
            const int32_t n = (int32_t) t.parents.size();
            CHECK(llama_heads_n_splits(heads.get(), n, t.parents.data(), t.ranks.data()) == (n > 1 ? 1 : 0));
            auto * plan = llama_heads_plan_init(heads.get(), n, t.parents.data(), t.ranks.data());
            CHECK(plan);
            check_copies(plan, t, flags == HOST && !f.on_device(), (int32_t) f.hidden.size());
            found.push_back(f.draft(plan, ctx, n, 5 + n));
            llama_heads_plan_free(plan);
        }
        // activations are quantised after they were computed in another way: then one may round to the other side
        const bool rounds = flags == TOPK_STATS && ggml_is_quantized(type);
        for (size_t i = 0; i < expected.size(); ++i) {
            check_same(found[i], expected[i], rounds ? 2e-3f : 1e-5f);
        }
        expected = std::move(found);
    }
    llama_free(ctx);

    if (f.on_device() && !ggml_is_quantized(type)) {
        check_against_cpu(f, path, trees, expected);
    }
}

// what of a whole draft is left when levels end by the rule of least_p
static drafted cut(drafted d, const tree & t, float least_p) {
    const size_t n = t.parents.size();

    std::vector<int32_t> depth(n, 0);
    std::vector<float>   p(n, 1.0f), best(N_HEADS + 1, 0.0f); // the likeliest node of each depth that has children
    for (size_t i = 1; i < n; ++i) {
        depth[i] = depth[t.parents[i]] + 1;
        p[i]     = p[t.parents[i]]*d.q[i];
        if (std::find(t.parents.begin(), t.parents.end(), (int32_t) i) != t.parents.end()) {
            best[depth[i]] = std::max(best[depth[i]], p[i]);
        }
    }
    int32_t n_levels = 1;
    while (n_levels < d.n_levels && best[n_levels] >= least_p) {
        n_levels++;
    }
    d.n_levels = std::min(d.n_levels, n_levels);
    for (size_t i = 0; i < n; ++i) {
        if (depth[i] > d.n_levels) {
            d.tokens[i] = LLAMA_TOKEN_NULL;
            d.q     [i] = 0.0f;
        }
    }
    std::fill(d.top1.begin() + d.n_levels, d.top1.end(), 0.0f);
    return d;
}

// levels that cannot pay are left out: on all devices by the same rule, and those before have the same bits
static void test_levels_end(const fixture & f, const char * path) {
    auto * ctx = f.make(2);
    for (const uint32_t flags : { HOST, TOPK_STATS, STOCK }) {
        auto heads = f.load(path, flags);
        std::set<int32_t> seen;
        for (int i = 0; i < 20; ++i) {
            const tree t = tree::random();
            const size_t n = t.parents.size();
            auto * plan = llama_heads_plan_init(heads.get(), (int32_t) n, t.parents.data(), t.ranks.data());
            CHECK(plan);
            const auto whole = f.draft(plan, ctx, n, 7);
            std::vector<float> limits = { -1.0f, 0.0f, 1e-30f, 2.0f };
            limits.insert(limits.end(), whole.q.begin(), whole.q.end()); // of nodes at depth 1 this is p itself
            for (const float least_p : limits) {
                const auto found    = f.draft(plan, ctx, n, 7, least_p);
                const auto expected = cut(whole, t, least_p);
                CHECK(found.n_levels == expected.n_levels);
                CHECK(found.tokens == expected.tokens && found.q == expected.q && found.top1 == expected.top1);
                seen.insert(found.n_levels);
            }
            CHECK(f.draft(plan, ctx, n, 7).tokens == whole.tokens);
            llama_heads_plan_free(plan);
        }
        CHECK(seen.size() >= N_HEADS);
    }
    llama_free(ctx);
}

static void test_threads_share_heads(const fixture & f, const char * path) {
    auto heads = f.load(path, 0);
    const tree t = tree::random();
    const size_t n = t.parents.size();

    const auto work = [&](drafted & out) {
        auto * ctx  = f.make(1);
        auto * plan = llama_heads_plan_init(heads.get(), (int32_t) n, t.parents.data(), t.ranks.data());
        for (int i = 0; i < 50; ++i) {
            out = f.draft(plan, ctx, n, 7, i % 2 ? 0.0f : 0.1f);
        }
        llama_heads_plan_free(plan);
        llama_free(ctx);
    };
    drafted results[2];
    std::thread other(work, std::ref(results[0]));
    work(results[1]);
    other.join();
    CHECK(results[0].tokens == results[1].tokens && results[0].q == results[1].q);
}

// what is changed in the header is refused, or makes other heads; nothing else happens
static void test_damaged_files(const fixture & f, const char * path) {
    std::ifstream in(path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    const std::string other = std::string(path) + ".damaged";

    for (int round = 0; round < 300; ++round) {
        std::string data = whole;
        const size_t header = 2500;
        if (round % 3 == 0) {
            data.resize(std::uniform_int_distribution<size_t>(0, round % 2 ? header : data.size() - 1)(rng));
        } else {
            for (int i = std::uniform_int_distribution<int>(1, 3)(rng); i > 0; --i) {
                data[std::uniform_int_distribution<size_t>(0, header)(rng)] = (char) rng();
            }
        }
        std::ofstream(other, std::ios::binary) << data;
        auto heads = f.load(other.c_str(), 0);
        CHECK(round % 3 != 0 || !heads);
    }
    remove(other.c_str());
}

int main(int argc, char ** argv) {
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: %s model.gguf heads.gguf [n_gpu_layers]\n", argv[0]);
        return 2;
    }

    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);

    fixture f;
    const int32_t n_gpu_layers = argc > 3 ? atoi(argv[3]) : 0;
    f.model     = load_model(argv[1], n_gpu_layers);
    f.model_cpu = n_gpu_layers == 0 ? f.model : load_model(argv[1], 0);
    const int32_t n_embd  = llama_model_n_embd(f.model);
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(f.model));

    std::normal_distribution<float> normal;
    for (int32_t i = 0; i < n_embd; ++i) {
        f.hidden.push_back(normal(rng));
    }

    for (const ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 }) {
        write_heads(argv[2], type, n_embd, n_vocab);
        test_graphs_agree(f, argv[2], type);
        test_levels_end(f, argv[2]);
    }
    test_threads_share_heads(f, argv[2]);
    test_damaged_files(f, argv[2]);

    remove(argv[2]);
    if (f.on_device()) {
        llama_model_free(f.model_cpu);
    }
    llama_model_free(f.model);
    printf("test-heads: ok\n");
    return 0;
}
