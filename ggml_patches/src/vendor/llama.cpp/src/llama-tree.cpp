#include "llama-tree.h"

#include "llama-context.h"
#include "llama-cpu-function.h"
#include "llama-impl.h"
#include "llama-kv-tree.h"
#include "llama-memory.h"
#include "llama-model.h"
#include "llama-row-stats.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <vector>

static_assert(LLAMA_TREE_MAX_NODES == LLAMA_KV_TREE_MAX_NODES, "the public limit is the one of the ancestor sets");

int32_t llama_localspec_abi(void) {
    return LLAMA_LOCALSPEC_ABI;
}

static llama_kv_trees * get_trees(const llama_context * ctx) {
    auto * memory = ctx->get_memory();
    return memory ? memory->get_trees() : nullptr;
}

const char * llama_tree_unsupported(const llama_context * ctx) {
    const auto & model   = ctx->get_model();
    const auto & hparams = model.hparams;

    if (!ctx->get_memory()) {
        return "the context has no memory (an encoder or a diffusion model)";
    }
    if (llm_arch_is_recurrent(model.arch)) {
        return "the model is recurrent: a tree would need one state per node";
    }
    if (llm_arch_is_hybrid(model.arch)) {
        return "the model has recurrent layers: a tree would need one state per node";
    }
    if (!get_trees(ctx)) {
        return "the cache of this context is shared with another context or of a kind that cannot hold trees";
    }
    if (ctx->get_cparams().ctx_type != LLAMA_CONTEXT_TYPE_DEFAULT || ctx->get_cparams().training) {
        return "the context is made for drafting heads or for training";
    }
    if (ctx->has_backend_samplers()) {
        return "backend samplers are attached to the context";
    }
    if (!ctx->get_causal_attn()) {
        return "attention is not causal";
    }
    if (hparams.n_pos_per_embd() > 1) {
        return "the model has multi-dimensional positions (M-RoPE)";
    }
    if (hparams.ple_n_heads > 0) {
        return "the model embeds n-grams of preceding tokens, which a tree does not have";
    }

    return nullptr;
}

static bool seq_is_valid(const llama_context * ctx, llama_seq_id seq) {
    return seq >= 0 && (uint32_t) seq < ctx->n_seq_max();
}

int32_t llama_tree_begin(llama_context * ctx, llama_seq_id seq) {
    if (const char * reason = llama_tree_unsupported(ctx)) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, reason);
        return LLAMA_TREE_UNSUPPORTED;
    }
    if (!seq_is_valid(ctx, seq)) {
        LLAMA_LOG_ERROR("%s: sequence %d is not in [0, %u)\n", __func__, seq, ctx->n_seq_max());
        return LLAMA_TREE_INVALID;
    }

    auto * trees = get_trees(ctx);
    if (trees->is_open(seq)) {
        LLAMA_LOG_ERROR("%s: sequence %d has an open tree\n", __func__, seq);
        return LLAMA_TREE_INVALID;
    }

    trees->open(seq, ctx->get_memory()->seq_pos_max(seq) + 1);

    return LLAMA_TREE_OK;
}

int32_t llama_tree_partition(llama_context * ctx) {
    auto * memory = ctx->get_memory();
    return memory && memory->partition() ? LLAMA_TREE_OK : LLAMA_TREE_UNSUPPORTED;
}

int32_t llama_tree_copy_prefix(llama_context * ctx, llama_seq_id src, llama_seq_id dst, int32_t n) {
    auto * memory = ctx->get_memory();
    if (!memory || !seq_is_valid(ctx, src) || !seq_is_valid(ctx, dst) || src == dst || n < 0) {
        LLAMA_LOG_ERROR("%s: cannot copy %d tokens of sequence %d to sequence %d\n", __func__, n, src, dst);
        return LLAMA_TREE_INVALID;
    }
    if (const auto * trees = get_trees(ctx); trees && trees->is_open(dst)) {
        LLAMA_LOG_ERROR("%s: sequence %d has an open tree\n", __func__, dst);
        return LLAMA_TREE_INVALID;
    }
    return memory->copy_prefix(src, dst, n) ? LLAMA_TREE_OK : LLAMA_TREE_UNSUPPORTED;
}

// check the nodes of a call and append them to their trees; on failure the trees are as before
static int32_t push_nodes(
        const llama_context * ctx, llama_kv_trees & trees, int32_t n, const int32_t * parents, const llama_seq_id * seqs,
        std::vector<int32_t> & nodes, std::map<llama_seq_id, int32_t> & n_before) {
    for (int32_t i = 0; i < n; ++i) {
        const llama_seq_id seq = seqs ? seqs[i] : 0;

        auto * tree = seq_is_valid(ctx, seq) ? trees.get(seq) : nullptr;
        if (!tree) {
            LLAMA_LOG_ERROR("%s: node %d: sequence %d has no open tree\n", __func__, i, seq);
            return LLAMA_TREE_INVALID;
        }
        n_before.emplace(seq, tree->n_nodes());

        if (parents[i] < -1 || parents[i] >= tree->n_nodes()) {
            LLAMA_LOG_ERROR("%s: node %d: parent %d does not come before it\n", __func__, i, parents[i]);
            return LLAMA_TREE_INVALID;
        }
        if (tree->n_nodes() == LLAMA_TREE_MAX_NODES) {
            LLAMA_LOG_ERROR("%s: the tree of sequence %d exceeds %d nodes\n", __func__, seq, LLAMA_TREE_MAX_NODES);
            return LLAMA_TREE_INVALID;
        }

        nodes.push_back(tree->n_nodes());
        tree->push(parents[i]);
    }

    return LLAMA_TREE_OK;
}

int32_t llama_tree_decode(
        llama_context * ctx, int32_t n, const llama_token * tokens, const int32_t * parents, const llama_seq_id * seqs,
        const int8_t * outputs) {
    auto * trees = get_trees(ctx);

    // things may have changed since the tree was opened
    if (const char * reason = llama_tree_unsupported(ctx)) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, reason);
        return LLAMA_TREE_UNSUPPORTED;
    }

    const int32_t n_out = outputs ? (int32_t) std::count_if(outputs, outputs + std::max(n, 0), [](int8_t o) { return o != 0; }) : n;

    if (n <= 0 || (uint32_t) n > ctx->n_batch() || (uint32_t) n_out > ctx->get_cparams().n_outputs_max) {
        LLAMA_LOG_ERROR("%s: %d nodes with %d outputs in one call: at least 1 and at most n_batch = %u, n_outputs_max = %u\n",
                __func__, n, n_out, ctx->n_batch(), ctx->get_cparams().n_outputs_max);
        return LLAMA_TREE_INVALID;
    }

    std::vector<int32_t>            nodes;
    std::map<llama_seq_id, int32_t> n_before;

    const auto restore = [&]() {
        for (const auto & [seq, n_keep] : n_before) {
            if (auto * tree = trees->get(seq)) {
                tree->pop(n_keep);
            }
        }
    };

    if (push_nodes(ctx, *trees, n, parents, seqs, nodes, n_before) != LLAMA_TREE_OK) {
        restore();
        return LLAMA_TREE_INVALID;
    }

    const int32_t n_vocab = ctx->get_model().vocab.n_tokens();

    std::vector<llama_pos>      pos(n);
    std::vector<int32_t>        n_seq_id(n, 1);
    std::vector<llama_seq_id>   seq_id(n, 0);
    std::vector<llama_seq_id *> seq_id_ptr(n);
    std::vector<int8_t>         output(n, 1);

    for (int32_t i = 0; i < n; ++i) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            LLAMA_LOG_ERROR("%s: node %d: token %d is not in [0, %d)\n", __func__, i, tokens[i], n_vocab);
            restore();
            return LLAMA_TREE_INVALID;
        }
        if (seqs) {
            seq_id[i] = seqs[i];
        }
        if (outputs) {
            output[i] = outputs[i];
        }
        seq_id_ptr[i] = &seq_id[i];
        pos[i]        = trees->get(seq_id[i])->pos(nodes[i]);
    }

    llama_batch batch = {
        /*.n_tokens =*/ n,
        /*.token    =*/ const_cast<llama_token *>(tokens),
        /*.embd     =*/ nullptr,
        /*.pos      =*/ pos.data(),
        /*.n_seq_id =*/ n_seq_id.data(),
        /*.seq_id   =*/ seq_id_ptr.data(),
        /*.logits   =*/ output.data(),
    };

    trees->stage(std::move(nodes));
    int ret;
    try {
        ret = ctx->decode(batch);
    } catch (const std::exception & err) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, err.what());
        ret = LLAMA_TREE_FAILED;
    }
    trees->unstage();

    switch (ret) {
        case 0:
            return LLAMA_TREE_OK;
        case 1: // found no room: nothing was placed
            restore();
            return LLAMA_TREE_FULL;
        case -1: // the batch was refused: nothing was placed
            restore();
            return LLAMA_TREE_INVALID;
        default:
            for (const auto & entry : n_before) {
                llama_tree_drop(ctx, entry.first);
            }
            return ret == 2 ? LLAMA_TREE_ABORTED : LLAMA_TREE_FAILED;
    }
}

int32_t llama_tree_n_nodes(const llama_context * ctx, llama_seq_id seq) {
    const auto * trees = get_trees(ctx);
    const auto * tree  = trees ? trees->get(seq) : nullptr;

    return tree ? tree->n_nodes() : -1;
}

int32_t llama_tree_accept(llama_context * ctx, llama_seq_id seq, const int32_t * path, int32_t n_path) {
    const auto * trees = get_trees(ctx);
    const auto * tree  = trees ? trees->get(seq) : nullptr;

    if (!tree || n_path < 0 || !tree->is_path(path, n_path)) {
        LLAMA_LOG_ERROR("%s: sequence %d: %s\n", __func__, seq, tree ? "the nodes are not a path of its tree" : "no open tree");
        return LLAMA_TREE_INVALID;
    }

    // rows may still be written by a decode in flight
    ctx->synchronize();
    ctx->get_memory()->tree_accept(seq, path, n_path);

    return LLAMA_TREE_OK;
}

void llama_tree_drop(llama_context * ctx, llama_seq_id seq) {
    const auto * trees = get_trees(ctx);

    if (trees && trees->is_open(seq)) {
        ctx->get_memory()->tree_accept(seq, nullptr, 0);
    }
}

const float * llama_tree_logits(llama_context * ctx, int32_t i) {
    return ctx->get_tree_logits_ith(i);
}

int32_t llama_tree_candidates(llama_context * ctx, int32_t i, llama_token_data * candidates) {
    const float * row = ctx->get_tree_logits_ith(i);
    if (!row) {
        return LLAMA_TREE_INVALID;
    }

    const int32_t n_vocab = ctx->get_model().vocab.n_tokens();
    for (llama_token id = 0; id < n_vocab; ++id) {
        candidates[id] = { id, row[id], 0.0f };
    }

    return LLAMA_TREE_OK;
}

const float * llama_tree_hidden(llama_context * ctx, int32_t i) {
    return ctx->get_tree_hidden_ith(i);
}

namespace {

// where the statistics of one row go; lse and entropy may be nullptr
struct row_result {
    const float * row;
    llama_token * ids;
    float *       logits;
    float *       lse;
    float *       entropy;
};

// found: a row of the result of ggml_topk_stats() with k_row >= k
void take_stats(const row_result & res, const float * found, int32_t k_row, int32_t k) {
    if (k > 0) {
        std::memcpy(res.ids,    found,         k*sizeof(float)); // the bits of the ids
        std::memcpy(res.logits, found + k_row, k*sizeof(float));
    }
    if (res.lse) {
        *res.lse     = found[2*k_row];
        *res.entropy = found[2*k_row + 1];
    }
}

// with the code of the operation, so that it makes no difference where they are computed
void compute_stats(const row_result & res, int32_t n_vocab, int32_t k) {
    static const auto topk_stats_row = cpu_function<void (*)(const float *, int64_t, int32_t, float *)>("ggml_topk_stats_row");

    if (!res.lse) {
        llama_row_top_k(res.row, n_vocab, k, res.ids, res.logits); // the same ids and logits in half the time
        return;
    }

    float stats[2*LLAMA_TREE_MAX_TOP_K + 2];

    const int32_t k_row = std::max(k, 1);
    topk_stats_row(res.row, n_vocab, k_row, stats);
    take_stats(res, stats, k_row, k);
}

} // namespace

int32_t llama_tree_stats(
        llama_context * ctx, int32_t n, const int32_t * nodes, int32_t k, llama_token * ids, float * logits, float * lse,
        float * entropy) {
    const int32_t n_vocab = ctx->get_model().vocab.n_tokens();

    if (k < 0 || k > std::min(LLAMA_TREE_MAX_TOP_K, n_vocab) || !lse != !entropy) {
        LLAMA_LOG_ERROR("%s: k = %d is not in [0, %d], or only one of lse and entropy is given\n", __func__, k, LLAMA_TREE_MAX_TOP_K);
        return LLAMA_TREE_INVALID;
    }

    std::vector<row_result> todo;

    for (int32_t i = 0; i < n; ++i) {
        row_result res = { nullptr, ids + i*k, logits + i*k, lse ? lse + i : nullptr, lse ? entropy + i : nullptr };

        int32_t k_row;
        if (const float * found = ctx->get_tree_stats_ith(nodes[i], k, k_row)) {
            take_stats(res, found, k_row, k);
            continue;
        }
        res.row = ctx->get_tree_logits_ith(nodes[i]);
        if (!res.row) {
            return LLAMA_TREE_INVALID;
        }
        todo.push_back(res);
    }

    const auto compute = [&](int32_t i) { compute_stats(todo[i], n_vocab, k); };

    // waking the threads takes as long as a few rows, and much longer on a busy machine
    if (todo.size() > 1 && todo.size()*n_vocab >= 1u << 20) {
        ctx->on_cpu_threads(todo.size(), compute);
    } else {
        for (size_t i = 0; i < todo.size(); ++i) {
            compute(i);
        }
    }

    return LLAMA_TREE_OK;
}

int32_t llama_tree_set_stats(llama_context * ctx, int32_t k) {
    if (k < 0 || k > LLAMA_TREE_MAX_TOP_K) {
        LLAMA_LOG_ERROR("%s: k = %d is not in [0, %d]\n", __func__, k, LLAMA_TREE_MAX_TOP_K);
        return LLAMA_TREE_INVALID;
    }
    ctx->set_tree_stats(k);
    return LLAMA_TREE_OK;
}

int32_t llama_tree_cells(const llama_context * ctx, llama_seq_id seq, int32_t * cells, int32_t n) {
    auto * memory = ctx->get_memory();
    if (!get_trees(ctx) || !seq_is_valid(ctx, seq)) {
        return LLAMA_TREE_INVALID;
    }

    const auto found = memory->tree_seq_cells(seq);
    std::copy_n(found.begin(), std::min<size_t>(std::max(n, 0), found.size()), cells);

    return (int32_t) found.size();
}

int64_t llama_tree_n_graph_builds(const llama_context * ctx) {
    return ctx->get_n_graph_builds();
}

bool llama_tree_mask_on_device(const llama_context * ctx) {
    return ctx->get_tree_ops().used_mask;
}

bool llama_tree_stats_on_device(const llama_context * ctx) {
    return ctx->get_tree_ops().used_stats;
}

int64_t llama_tree_n_bytes_fetched(const llama_context * ctx) {
    return ctx->get_tree_ops().n_bytes_fetched;
}

int64_t llama_tree_n_bytes_sent(const llama_context * ctx) {
    return ctx->get_tree_ops().n_bytes_sent;
}
