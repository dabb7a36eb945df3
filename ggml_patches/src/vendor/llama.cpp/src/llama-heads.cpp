#include "llama-heads.h"

#include "llama-context.h"
#include "llama-heads-graph.h"
#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>

static void check_model(const llama_heads_spec & spec, const llama_model & model) {
    const auto & hparams = model.hparams;
    const int32_t n_vocab = (int32_t) model.vocab.n_tokens();

    if (spec.n_embd != (int32_t) hparams.n_embd || hparams.n_embd_out() != hparams.n_embd) {
        throw std::runtime_error(format("the model's hidden states have %u elements, the heads take %d", hparams.n_embd_out(), spec.n_embd));
    }
    if (spec.n_vocab != n_vocab) {
        throw std::runtime_error(format("the model has %d tokens, the heads know %d", n_vocab, spec.n_vocab));
    }
    if (!model.tok_embd || model.tok_embd->ne[0] != spec.n_embd || model.tok_embd->ne[1] < n_vocab) {
        throw std::runtime_error("the model has no table of input embeddings");
    }
}

// a tree that asks all heads, and for as many tokens as trees ever do, can be drafted where they are
static void check_device(const llama_heads & heads) {
    const int32_t last = std::min(128, heads.spec.n_rows(heads.spec.n_heads - 1)) - 1;

    std::vector<int32_t> parents = { -1 };
    std::vector<int32_t> ranks   = {  0 };
    for (int32_t depth = 0; depth < heads.spec.n_heads; ++depth) {
        const int32_t parent = depth == 0 ? 0 : 2*depth - 1;
        for (const int32_t rank : { 0, last }) {
            parents.push_back(parent);
            ranks  .push_back(rank);
        }
    }
    llama_heads_plan(heads, (int32_t) parents.size(), parents.data(), ranks.data());
}

// heads on a device; nullptr: it cannot hold or compute them, and they stay on the CPU
static std::unique_ptr<llama_heads> load_on_device(llama_heads_file & file, const llama_model & model, ggml_backend_dev_t dev, bool stock_top_k) {
    try {
        std::unique_ptr<llama_heads> heads(new llama_heads { model, file.spec(), dev, false, stock_top_k, nullptr });
        heads->weights = std::make_unique<llama_heads_weights>(file, model, dev, false);
        check_device(*heads);
        return heads;
    } catch (const std::exception & error) {
        LLAMA_LOG_WARN("%s: the draft heads stay on the CPU: %s\n", __func__, error.what());
        return nullptr;
    }
}

llama_heads * llama_heads_load(const llama_model * model, const char * path, uint32_t flags) {
    if (!model || !path || (flags & ~(uint32_t) (LLAMA_HEADS_PORTABLE | LLAMA_HEADS_STOCK_TOP_K))) {
        LLAMA_LOG_ERROR("%s: invalid arguments\n", __func__);
        return nullptr;
    }
    try {
        const bool host_ops    = !(flags & LLAMA_HEADS_PORTABLE);
        const bool stock_top_k = flags & LLAMA_HEADS_STOCK_TOP_K;

        llama_heads_file file(path);
        check_model(file.spec(), *model);

        ggml_backend_dev_t dev = model->dev_output();
        const auto kind = ggml_backend_dev_type(dev);
        if (kind == GGML_BACKEND_DEVICE_TYPE_GPU || kind == GGML_BACKEND_DEVICE_TYPE_IGPU) {
            if (auto heads = load_on_device(file, *model, dev, stock_top_k)) {
                return heads.release();
            }
        }
        dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        std::unique_ptr<llama_heads> heads(new llama_heads { *model, file.spec(), dev, host_ops, stock_top_k, nullptr });
        heads->weights = std::make_unique<llama_heads_weights>(file, *model, dev, host_ops);
        return heads.release();
    } catch (const std::exception & error) {
        LLAMA_LOG_ERROR("%s: %s cannot be used: %s\n", __func__, path, error.what());
        return nullptr;
    }
}

void llama_heads_free(llama_heads * heads) {
    delete heads;
}

int32_t llama_heads_n_heads(const llama_heads * heads) {
    return heads->spec.n_heads;
}

int64_t llama_heads_n_bytes(const llama_heads * heads) {
    return (int64_t) heads->weights->n_bytes();
}

const char * llama_heads_device(const llama_heads * heads) {
    return ggml_backend_dev_name(heads->dev);
}

llama_heads_plan * llama_heads_plan_init(const llama_heads * heads, int32_t n_nodes, const int32_t * parents, const int32_t * ranks) {
    try {
        return new llama_heads_plan(*heads, n_nodes, parents, ranks);
    } catch (const std::exception & error) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
        return nullptr;
    }
}

void llama_heads_plan_free(llama_heads_plan * plan) {
    delete plan;
}

int64_t llama_heads_plan_n_bytes_sent(const llama_heads_plan * plan) {
    return plan->n_bytes_sent();
}

int64_t llama_heads_plan_n_bytes_fetched(const llama_heads_plan * plan) {
    return plan->n_bytes_fetched();
}

int32_t llama_heads_n_splits(const llama_heads * heads, int32_t n_nodes, const int32_t * parents, const int32_t * ranks) {
    try {
        return llama_heads_plan(*heads, n_nodes, parents, ranks, /*place =*/ false).n_splits();
    } catch (const std::exception & error) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
        return -1;
    }
}

static ggml_status compute(llama_heads_plan & plan, llama_context & ctx, float least_p) {
    // a device computes all levels at once, as fetching each of them would take longer than what is saved
    const bool by_level = least_p > 0 && !plan.level_graphs.empty();

    if (!by_level) {
        const auto status = ctx.graph_compute_on(plan.heads.dev, plan.gf);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        plan.read_results();
    }
    plan.n_levels = 0;
    do {
        if (by_level) {
            const auto status = ctx.graph_compute_on(plan.heads.dev, plan.level_graphs[plan.n_levels]);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
    } while (plan.goes_on(least_p));
    return GGML_STATUS_SUCCESS;
}

int32_t llama_heads_draft(
        llama_heads_plan * plan, llama_context * ctx, const float * hidden, llama_token root, float least_p,
        llama_token * tokens, float * q, float * top1, int32_t * n_levels) {
    const auto & heads = plan->heads;

    if (&ctx->get_model() != &heads.model || !hidden || root < 0 || root >= heads.spec.n_vocab) {
        LLAMA_LOG_ERROR("%s: the context is one of another model, or the root %d is no token\n", __func__, root);
        return LLAMA_HEADS_INVALID;
    }
    plan->set_input(hidden, root);

    if (plan->gf) {
        const auto status = compute(*plan, *ctx, least_p);
        if (status != GGML_STATUS_SUCCESS) {
            LLAMA_LOG_ERROR("%s: computing failed with status %d\n", __func__, status);
            return status == GGML_STATUS_ABORTED ? LLAMA_HEADS_ABORTED : LLAMA_HEADS_FAILED;
        }
    }
    std::copy(plan->tokens.begin(), plan->tokens.end(), tokens);
    std::copy(plan->q     .begin(), plan->q     .end(), q);
    std::copy(plan->top1  .begin(), plan->top1  .end(), top1);
    *n_levels = plan->n_levels;

    return LLAMA_HEADS_OK;
}
