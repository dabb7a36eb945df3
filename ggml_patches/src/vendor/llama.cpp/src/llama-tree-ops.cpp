#include "llama-tree-ops.h"

#include "llama-context.h"
#include "llama-graph.h"
#include "llama-impl.h"

#include "ggml.h"

#include <atomic>
#include <cstdlib>
#include <unordered_set>

// the map of the cells and the operation together take no longer than the host's mask, and less where it is large: half or so for
// one tree, where both are mostly the writing of it, a fraction for several trees or with a window
static constexpr bool mask_pays_on_cpu = true;

// all rows on the threads of a graph take longer than the few that a step looks at, one at a time
static constexpr bool stats_pay_on_cpu = false;

static llama_tree_ops::choice choice_from(const char * variable) {
    const char * value = getenv(variable);
    if (!value) {
        return llama_tree_ops::WHERE_IT_PAYS;
    }
    return atoi(value) != 0 ? llama_tree_ops::ALWAYS : llama_tree_ops::NEVER;
}

llama_tree_ops::llama_tree_ops() :
    // env: LLAMA_TREE_MASK - 0: masks of tree decodes are made on the host, 1: by an operation wherever that is possible
    want_mask(choice_from("LLAMA_TREE_MASK")),
    // env: LLAMA_TREE_STATS - 0: never compute row statistics in the graph, 1: wherever that is possible
    want_stats(choice_from("LLAMA_TREE_STATS")) {
}

static bool is_wanted(llama_tree_ops::choice choice, bool pays_on_cpu, ggml_backend_t backend) {
    switch (choice) {
        case llama_tree_ops::NEVER:  return false;
        case llama_tree_ops::ALWAYS: return true;
        default: return pays_on_cpu || ggml_backend_dev_type(ggml_backend_get_device(backend)) != GGML_BACKEND_DEVICE_TYPE_CPU;
    }
}

// the mask that an attention node takes, or nullptr
static const ggml_tensor * mask_of(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_FLASH_ATTN_EXT: return node->src[3];
        case GGML_OP_SOFT_MAX:       return node->src[1];
        default:                     return nullptr;
    }
}

// the device of the masks if every attention node takes one right from the operation. a split graph has copies in place of
// tensors of other devices
static ggml_backend_t mask_backend(ggml_backend_sched_t sched, ggml_cgraph * gf) {
    ggml_backend_t res = nullptr;

    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * mask = mask_of(ggml_graph_node(gf, i));
        if (!mask) {
            continue;
        }
        ggml_backend_t backend = mask->op != GGML_OP_TREE_MASK ? nullptr :
            ggml_backend_sched_get_tensor_backend(sched, const_cast<ggml_tensor *>(mask));
        if (!backend || (res && backend != res)) {
            return nullptr;
        }
        res = backend;
    }

    return res;
}

void llama_tree_ops::probe(ggml_backend_sched_t sched, const llm_graph_result & res) {
    ggml_backend_t of_mask = mask_backend(sched, res.get_gf());

    ggml_backend_t of_stats = nullptr;
    if (res.get_tree_stats()) {
        of_stats = ggml_backend_sched_get_tensor_backend(sched, res.get_tree_stats());
        if (of_stats != ggml_backend_sched_get_tensor_backend(sched, res.get_logits())) {
            of_stats = nullptr;
        }
    }

    mask   = of_mask  && is_wanted(want_mask,  mask_pays_on_cpu, of_mask);
    stats  = of_stats && is_wanted(want_stats, stats_pay_on_cpu, of_stats);
    probed = true;

    LLAMA_LOG_DEBUG("%s: masks of token trees: %s, statistics of their rows: %s\n", __func__,
            mask ? ggml_backend_name(of_mask) : "host", stats ? ggml_backend_name(of_stats) : "host");
}

bool llama_tree_ops::is_on_host(const ggml_tensor * t) {
    return ggml_backend_buffer_is_host(t->view_src ? t->view_src->buffer : t->buffer);
}

void llama_tree_ops::count_fetched(const ggml_tensor * t, size_t n_bytes) {
    if (!is_on_host(t)) {
        n_bytes_fetched += n_bytes;
    }
}

size_t llama_tree_ops::input_bytes(ggml_cgraph * gf) {
    std::unordered_set<const ggml_tensor *> seen;

    size_t res = 0;
    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * node = ggml_graph_node(gf, i);
        for (int j = 0; j < GGML_MAX_SRC; ++j) {
            // the scheduler has put copies in the place of what other devices compute or hold
            const ggml_tensor * src = node->src[j];
            if (src && src->op == GGML_OP_NONE && !src->view_src && src->buffer && !ggml_backend_buffer_is_host(src->buffer) &&
                    ggml_backend_buffer_get_usage(src->buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE && seen.insert(src).second) {
                res += ggml_nbytes(src);
            }
        }
    }
    return res;
}

namespace {

struct cpu_job {
    const int32_t n;
    const std::function<void(int32_t)> & f;
    std::atomic<int32_t> next{0};
};

void run_job(ggml_tensor * /*dst*/, int /*ith*/, int /*nth*/, void * userdata) {
    auto & job = *(cpu_job *) userdata;
    for (int32_t i = job.next++; i < job.n; i = job.next++) {
        job.f(i);
    }
}

} // namespace

void llama_context::on_cpu_threads(int32_t n, const std::function<void(int32_t)> & f) {
    cpu_job job = { n, f };

    // a graph of one node is how the threads of a back end are reached
    std::vector<uint8_t> memory(ggml_tensor_overhead() + ggml_graph_overhead_custom(1, false));
    ggml_context_ptr ctx(ggml_init({ memory.size(), memory.data(), /*.no_alloc =*/ true }));

    ggml_tensor * node = ggml_custom_4d(ctx.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, run_job, GGML_N_TASKS_MAX, &job);
    ggml_cgraph * gf   = ggml_new_graph_custom(ctx.get(), 1, false);
    ggml_build_forward_expand(gf, node);

    set_backend_threads(false);
    ggml_backend_graph_compute(backend_cpu, gf);

    run_job(nullptr, 0, 1, &job); // what is left if the abort callback has stopped the graph
}
