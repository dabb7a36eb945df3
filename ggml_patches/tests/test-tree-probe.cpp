// where the masks of tree decodes and the statistics of their rows are made, and what is copied for them: on a device that stands in
// for a GPU, has the operations or lacks some, and holds all layers or half of them
//
// usage: test-tree-probe model.gguf

#include "check.h"
#include "fake-device.h"

#include "llama-tree.h"

#include <cmath>
#include <cstring>
#include <vector>

static const int32_t n_nodes = 24;
static const int32_t k       = 4;

struct outcome {
    bool                     mask, stats;
    int64_t                  n_sent, n_fetched; // by the second decode and a look at all its statistics
    std::vector<llama_token> ids;
    std::vector<float>       logits, lse, entropy, row;
};

// two decodes of a tree of n_nodes: the first one probes and builds
static outcome run(const char * path, fake_device * device, int32_t n_gpu_layers, const char * choice = nullptr) {
    for (const char * name : { "LLAMA_TREE_MASK", "LLAMA_TREE_STATS" }) {
        if (choice) {
            setenv(name, choice, 1);
        } else {
            unsetenv(name);
        }
    }
    ggml_backend_dev_t devices[2] = { device ? &device->dev : nullptr, nullptr };

    auto params = llama_model_default_params();
    params.devices      = devices;
    params.n_gpu_layers = n_gpu_layers;
    auto * model = llama_model_load_from_file(path, params);
    CHECK(model);

    auto context_params = llama_context_default_params();
    context_params.n_ctx           = 1024;
    context_params.n_threads       = 1;
    context_params.n_threads_batch = 1;
    context_params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    auto * ctx = llama_init_from_model(model, context_params);
    CHECK(ctx);
    CHECK(llama_tree_set_stats(ctx, k) == LLAMA_TREE_OK);

    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));

    std::vector<llama_token> prompt(600);
    for (size_t i = 0; i < prompt.size(); ++i) {
        prompt[i] = (llama_token) (7*i % n_vocab);
    }
    CHECK(llama_decode(ctx, llama_batch_get_one(prompt.data(), 512)) == 0);
    CHECK(llama_decode(ctx, llama_batch_get_one(prompt.data() + 512, 88)) == 0);

    std::vector<int32_t> parents(n_nodes), nodes(n_nodes);
    for (int32_t i = 0; i < n_nodes; ++i) {
        parents[i] = (i - 1)/2 - (i == 0);
        nodes  [i] = i;
    }
    parents[0] = -1;

    outcome res;
    res.ids.resize(n_nodes*k);
    res.logits.resize(n_nodes*k);
    res.lse.resize(n_nodes);
    res.entropy.resize(n_nodes);

    for (int call = 0; call < 2; ++call) {
        res.n_sent    = llama_tree_n_bytes_sent(ctx);
        res.n_fetched = llama_tree_n_bytes_fetched(ctx);
        CHECK(llama_tree_begin(ctx, 0) == LLAMA_TREE_OK);
        CHECK(llama_tree_decode(ctx, n_nodes, prompt.data(), parents.data(), nullptr, nullptr) == LLAMA_TREE_OK);
        CHECK(llama_tree_stats(ctx, n_nodes, nodes.data(), k, res.ids.data(), res.logits.data(), res.lse.data(), res.entropy.data()) == LLAMA_TREE_OK);
        res.n_sent    = llama_tree_n_bytes_sent(ctx)    - res.n_sent;
        res.n_fetched = llama_tree_n_bytes_fetched(ctx) - res.n_fetched;
        llama_tree_drop(ctx, 0);
    }
    res.mask  = llama_tree_mask_on_device(ctx);
    res.stats = llama_tree_stats_on_device(ctx);

    const float * row = llama_tree_logits(ctx, n_nodes - 1);
    res.row.assign(row, row + llama_vocab_n_tokens(llama_model_get_vocab(model)));

    llama_free(ctx);
    llama_model_free(model);
    return res;
}

static bool same_results(const outcome & a, const outcome & b) {
    return a.ids == b.ids && a.logits == b.logits && a.lse == b.lse && a.entropy == b.entropy && a.row == b.row;
}

static std::function<bool(const ggml_tensor *)> only(ggml_op op) {
    return [op](const ggml_tensor * t) { return t->op == op; };
}

int main(int argc, char ** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s model.gguf\n", argv[0]);
        return 2;
    }
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);

    const char * path = argv[1];

    // the host's memory: nothing is copied
    const outcome cpu = run(path, nullptr, 0, "1");
    CHECK(cpu.mask && cpu.stats && cpu.n_sent == 0 && cpu.n_fetched == 0);

    fake_device able, maskless, plain;
    maskless.lacks = only(GGML_OP_TREE_MASK);
    plain   .lacks = only(GGML_OP_TOPK_STATS);

    const outcome full = run(path, &able, 999);
    CHECK(full.mask && full.stats);

    const outcome host = run(path, &able, 999, "0");
    CHECK(!host.mask && !host.stats && same_results(host, full));

    const size_t n_vocab = full.row.size();
    CHECK(full.n_fetched == (int64_t) (n_nodes*(2*k + 2)*sizeof(float))); // all statistics once
    CHECK(host.n_fetched == (int64_t) (n_nodes*n_vocab*sizeof(float)));   // all rows once

    // 2 bytes for each of 768 cells and node, against 4 for each cell and 40 for each node
    CHECK(host.n_sent - full.n_sent == 768*n_nodes*2 - (768*4 + n_nodes*40));

    const outcome no_mask = run(path, &maskless, 999);
    CHECK(!no_mask.mask && no_mask.stats && same_results(no_mask, full));
    CHECK(no_mask.n_sent == host.n_sent && no_mask.n_fetched == full.n_fetched);

    const outcome no_stats = run(path, &plain, 999);
    CHECK(no_stats.mask && !no_stats.stats && same_results(no_stats, full));
    CHECK(no_stats.n_sent == full.n_sent && no_stats.n_fetched == host.n_fetched);

    // attention on two devices: the output layer and one more on the device, the others not
    const outcome half = run(path, &able, 2, "1");
    CHECK(!half.mask && half.stats && same_results(half, full));

    printf("test-tree-probe: ok\n");
    return 0;
}
