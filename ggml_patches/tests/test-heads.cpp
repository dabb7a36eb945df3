// draft heads through the C interface: all kinds of graphs, that none leaves its device, several threads, and files that are damaged
//
// usage: test-heads model.gguf heads.gguf
//
// heads.gguf is written: heads of random weights for the model. what they should draft is a matter of tests/engine/test_heads.py

#include "check.h"

#include "ggml-cpp.h"
#include "gguf.h"
#include "llama-heads.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

static std::mt19937 rng(42);

static constexpr int32_t N_HEADS = 3;
static constexpr int32_t N_DRAFT = 200;

struct heads_writer {
    ggml_context_ptr ctx  { ggml_init({ 64*1024*1024, nullptr, false }) };
    gguf_context_ptr gguf { gguf_init_empty() };

    void add(const std::string & name, ggml_type type, int64_t n_cols, int64_t n_rows) {
        std::normal_distribution<float> normal(0.0f, n_rows > 1 ? 1.0f/std::sqrt((float) n_cols) : 0.1f);
        std::vector<float> values(n_cols*n_rows);
        for (auto & x : values) {
            x = normal(rng);
        }
        ggml_tensor * t = ggml_new_tensor_2d(ctx.get(), type, n_cols, n_rows);
        ggml_set_name(t, name.c_str());
        ggml_quantize_chunk(type, values.data(), t->data, 0, n_rows, n_cols, nullptr);
        gguf_add_tensor(gguf.get(), t);
    }

    void add_linear(const std::string & name, ggml_type type, int64_t n_cols, int64_t n_rows) {
        add(name + ".weight", type, n_cols, n_rows);
        add(name + ".bias", GGML_TYPE_F32, n_rows, 1);
    }
};

// grounded heads of two blocks with a trimmed vocabulary of the tokens 0, 3, 6, ..
static void write_heads(const char * path, ggml_type type, int32_t n_embd, int32_t n_vocab) {
    heads_writer w;
    auto * gguf = w.gguf.get();
    gguf_set_val_str(gguf, "general.architecture", "hydra");
    gguf_set_val_str(gguf, "hydra.head_arch", "hydra-mlp");
    const std::pair<const char *, uint32_t> numbers[] = {
        { "format_version", 1 }, { "head_count", N_HEADS }, { "block_count", 2 }, { "embedding_length", n_embd },
        { "vocab_size", n_vocab }, { "draft_vocab_size", N_DRAFT } };
    for (const auto & [key, value] : numbers) {
        gguf_set_val_u32(gguf, (std::string("hydra.") + key).c_str(), value);
    }
    for (const char * key : { "grounded", "tied_blocks", "shared_output", "output_bias" }) {
        gguf_set_val_bool(gguf, (std::string("hydra.") + key).c_str(), true);
    }
    for (int head = 0; head < N_HEADS; ++head) {
        const std::string name = "head." + std::to_string(head) + ".blk.";
        w.add_linear(name + "0.l", type, n_embd*(head + 2), n_embd);
        w.add_linear(name + "0.r", type, n_embd*(head + 2), n_embd);
        w.add_linear(name + "1.l", type, n_embd, n_embd);
    }
    w.add_linear("output", type, n_embd, N_DRAFT);

    ggml_tensor * d2t = ggml_new_tensor_1d(w.ctx.get(), GGML_TYPE_I32, N_DRAFT);
    ggml_set_name(d2t, "d2t");
    for (int32_t i = 0; i < N_DRAFT; ++i) {
        ((int32_t *) d2t->data)[i] = i*(n_vocab/N_DRAFT);
    }
    gguf_add_tensor(gguf, d2t);
    CHECK(gguf_write_to_file(gguf, path, false));
}

struct tree {
    std::vector<int32_t> parents = { -1 };
    std::vector<int32_t> ranks   = {  0 };

    static tree random() {
        tree t;
        std::vector<int32_t> depth = { 0 }, n_children = { 0 };
        const int n = std::uniform_int_distribution<int>(1, 40)(rng);
        while ((int) t.parents.size() < n) {
            const int parent = std::uniform_int_distribution<int>(0, (int) t.parents.size() - 1)(rng);
            if (depth[parent] < N_HEADS) {
                t.parents.push_back(parent);
                t.ranks  .push_back(n_children[parent]++);
                depth.push_back(depth[parent] + 1);
                n_children.push_back(0);
            }
        }
        return t;
    }
};

struct drafted {
    std::vector<llama_token> tokens;
    std::vector<float>       q;
    std::vector<float>       top1;
};

struct fixture {
    llama_model *      model;
    std::vector<float> hidden;

    std::unique_ptr<llama_heads, void (*)(llama_heads *)> load(const char * path, uint32_t flags) const {
        return { llama_heads_load(model, path, flags), llama_heads_free };
    }

    llama_context * make(int32_t n_threads) const {
        auto params = llama_context_default_params();
        params.n_ctx     = 64;
        params.n_threads = n_threads;
        auto * ctx = llama_init_from_model(model, params);
        CHECK(ctx);
        return ctx;
    }

    drafted draft(llama_heads_plan * plan, llama_context * ctx, size_t n, llama_token root) const {
        drafted d = { std::vector<llama_token>(n), std::vector<float>(n), std::vector<float>(N_HEADS) };
        CHECK(llama_heads_draft(plan, ctx, hidden.data(), root, d.tokens.data(), d.q.data(), d.top1.data()) == LLAMA_HEADS_OK);
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
static void check_copies(const llama_heads_plan * plan, const tree & t, uint32_t flags, int32_t n_embd) {
    const bool copies = flags != HOST && t.parents.size() > 1;
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
            check_copies(plan, t, flags, (int32_t) f.hidden.size());
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
}

static void test_threads_share_heads(const fixture & f, const char * path) {
    auto heads = f.load(path, 0);
    const tree t = tree::random();
    const size_t n = t.parents.size();

    const auto work = [&](drafted & out) {
        auto * ctx  = f.make(1);
        auto * plan = llama_heads_plan_init(heads.get(), (int32_t) n, t.parents.data(), t.ranks.data());
        for (int i = 0; i < 50; ++i) {
            out = f.draft(plan, ctx, n, 7);
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
    if (argc != 3) {
        fprintf(stderr, "usage: %s model.gguf heads.gguf\n", argv[0]);
        return 2;
    }

    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);

    fixture f;
    f.model = llama_model_load_from_file(argv[1], llama_model_default_params());
    CHECK(f.model);
    const int32_t n_embd  = llama_model_n_embd(f.model);
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(f.model));

    std::normal_distribution<float> normal;
    for (int32_t i = 0; i < n_embd; ++i) {
        f.hidden.push_back(normal(rng));
    }

    for (const ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 }) {
        write_heads(argv[2], type, n_embd, n_vocab);
        test_graphs_agree(f, argv[2], type);
    }
    test_threads_share_heads(f, argv[2]);
    test_damaged_files(f, argv[2]);

    remove(argv[2]);
    llama_model_free(f.model);
    printf("test-heads: ok\n");
    return 0;
}
