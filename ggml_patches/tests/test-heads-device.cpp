// draft heads beside an output layer on a device: where they lie, that no part of a graph leaves it, and what is copied.
// The device is a fake one, so that all devices that lack something can be had anywhere.
//
// usage: test-heads-device model.gguf heads.gguf
//
// heads.gguf is written

#include "check.h"
#include "fake-device.h"
#include "random-heads.h"

#include "llama-heads.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

struct drafted {
    std::vector<llama_token> tokens;
    std::vector<float>       q;
};

struct fixture {
    fake_device           device;
    ggml_backend_dev_t    devices[2] = { &device.dev, nullptr };
    const char *          path; // of the heads
    llama_model *         model = nullptr;
    llama_context *       ctx   = nullptr;
    std::vector<float>    hidden;
    std::vector<tree>     trees;

    void open(const char * model_path, int32_t n_gpu_layers) {
        auto params = llama_model_default_params();
        params.devices      = devices;
        params.n_gpu_layers = n_gpu_layers;
        model = llama_model_load_from_file(model_path, params);
        CHECK(model);
        auto context_params = llama_context_default_params();
        context_params.n_ctx     = 64;
        context_params.n_threads = 1;
        ctx = llama_init_from_model(model, context_params);
        CHECK(ctx);
    }

    void close() {
        llama_free(ctx);
        llama_model_free(model);
    }

    std::unique_ptr<llama_heads, void (*)(llama_heads *)> load() const {
        return { llama_heads_load(model, path, 0), llama_heads_free };
    }

    // also checks that one copy goes each way, if the heads are on the device
    std::vector<drafted> draft(const llama_heads * heads) {
        const bool on_device = strcmp(llama_heads_device(heads), "FAKE0") == 0;
        std::vector<drafted> all;
        for (const auto & t : trees) {
            const int32_t n = (int32_t) t.parents.size();
            CHECK(llama_heads_n_splits(heads, n, t.parents.data(), t.ranks.data()) == (n > 1 ? 1 : 0));
            auto * plan = llama_heads_plan_init(heads, n, t.parents.data(), t.ranks.data());
            CHECK(plan);
            drafted d = { std::vector<llama_token>(n), std::vector<float>(n) };
            for (const float least_p : { 2.0f, 0.0f }) { // the first level alone, then all
                device.n_sent = device.n_fetched = 0;
                float top1[N_HEADS];
                int32_t n_levels;
                CHECK(llama_heads_draft(plan, ctx, hidden.data(), 5, least_p, d.tokens.data(), d.q.data(), top1, &n_levels) == LLAMA_HEADS_OK);
                CHECK(device.n_sent == (on_device && n > 1) && device.n_fetched == (on_device && n > 1));
                CHECK(least_p == 0 || n_levels == (n > 1));
            }
            llama_heads_plan_free(plan);
            all.push_back(d);
        }
        return all;
    }
};

static void check_close(const std::vector<drafted> & found, const std::vector<drafted> & expected, float tolerance) {
    for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(found[i].tokens == expected[i].tokens);
        for (size_t j = 0; j < expected[i].q.size(); ++j) {
            CHECK(std::abs(found[i].q[j] - expected[i].q[j]) <= tolerance*expected[i].q[j]);
        }
    }
}

static bool is_table_lookup(const ggml_tensor * op) {
    return op->op == GGML_OP_GET_ROWS && ggml_is_quantized(op->src[0]->type);
}

static bool is_id_lookup(const ggml_tensor * op) {
    return op->op == GGML_OP_GET_ROWS && op->src[0]->type == GGML_TYPE_I32;
}

// what is asked of back ends beyond their common ground: CUDA's SILU wants contiguous rows
static bool is_strided_silu(const ggml_tensor * op) {
    return op->op == GGML_OP_UNARY && !ggml_is_contiguous(op->src[0]);
}

static void test_where_heads_lie(fixture & f, const std::vector<drafted> & expected) {
    const struct {
        bool        (*lacks)(const ggml_tensor *);
        const char *  device;
        float         tolerance;
    } cases[] = {
        { [](const ggml_tensor *    ) { return false; },                      "FAKE0", 1e-5f },
        { [](const ggml_tensor * op ) { return op->op == GGML_OP_TOPK_STATS; }, "FAKE0", 1e-5f },
        { is_strided_silu,                                                    "FAKE0", 1e-5f },
        { is_table_lookup,                                                    "FAKE0", 1e-2f }, // its table is of F16
        { is_id_lookup,                                                       "CPU",   1e-5f },
        { [](const ggml_tensor * op ) { return op->op == GGML_OP_TOP_K; },      "CPU",   1e-5f }, // no tree that is very wide
    };
    for (const auto & c : cases) {
        f.device.lacks = c.lacks;
        auto heads = f.load();
        CHECK(heads && strcmp(llama_heads_device(heads.get()), c.device) == 0);
        check_close(f.draft(heads.get()), expected, c.tolerance);
    }
    // the table is there as the device can read it
    f.device.lacks = cases[0].lacks;
    const int64_t n_bytes = llama_heads_n_bytes(f.load().get());
    f.device.lacks = is_table_lookup;
    CHECK(llama_heads_n_bytes(f.load().get()) > n_bytes);

    f.device.lacks      = cases[0].lacks;
    f.device.max_buffer = 1000;
    auto heads = f.load();
    CHECK(heads && strcmp(llama_heads_device(heads.get()), "CPU") == 0);
    f.device.max_buffer = SIZE_MAX;
}

// a device that cannot compute all of a graph gets none of it
static void test_no_graph_in_parts(fixture & f) {
    auto heads = f.load();
    f.device.lacks = [](const ggml_tensor * op) { return op->op == GGML_OP_UNARY; };
    for (const auto & t : f.trees) {
        const int32_t n = (int32_t) t.parents.size();
        if (n > 1) {
            CHECK(llama_heads_n_splits(heads.get(), n, t.parents.data(), t.ranks.data()) > 1);
            CHECK(!llama_heads_plan_init(heads.get(), n, t.parents.data(), t.ranks.data()));
        }
    }
    f.device.lacks = [](const ggml_tensor *) { return false; };
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s model.gguf heads.gguf\n", argv[0]);
        return 2;
    }
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);

    fixture f;
    f.path = argv[2];
    f.open(argv[1], 0);
    const int32_t n_embd = llama_model_n_embd(f.model);
    write_heads(f.path, GGML_TYPE_F32, n_embd, llama_vocab_n_tokens(llama_model_get_vocab(f.model)));

    std::normal_distribution<float> normal;
    for (int32_t i = 0; i < n_embd; ++i) {
        f.hidden.push_back(normal(rng));
    }
    for (int i = 0; i < 20; ++i) {
        f.trees.push_back(tree::random());
    }

    // no layer is on the device
    auto heads = f.load();
    CHECK(heads && strcmp(llama_heads_device(heads.get()), "CPU") == 0);
    const auto expected = f.draft(heads.get());
    heads.reset();
    f.close();

    // the output layer alone is, and then all layers
    for (const int32_t n_gpu_layers : { 1, 99 }) {
        f.open(argv[1], n_gpu_layers);
        test_where_heads_lie(f, expected);
        test_no_graph_in_parts(f);
        f.close();
    }
    remove(f.path);
    printf("test-heads-device: ok\n");
    return 0;
}
