#include "llama-heads-graph.h"

#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

llama_heads_plan::llama_heads_plan(const llama_heads & heads, int32_t n_nodes, const int32_t * parents, const int32_t * ranks, bool place) :
    heads(heads), levels(llama_heads_levels(n_nodes, parents, ranks)), tokens(n_nodes), q(n_nodes, 1.0f), top1(levels.size()),
    p(n_nodes, 1.0f) {
    if ((int32_t) levels.size() > heads.spec.n_heads) {
        throw std::runtime_error(format("a tree of depth %zu is too deep for %d heads", levels.size(), heads.spec.n_heads));
    }
    for (size_t d = 0; d < levels.size(); ++d) {
        const int32_t n_rows = heads.spec.n_rows((int) d);
        if (levels[d].width() > n_rows) {
            throw std::runtime_error(format("rank %d is asked of a head that knows %d tokens", levels[d].width() - 1, n_rows));
        }
    }
    if (levels.empty()) {
        return;
    }
    build();
    if (place) {
        add_results();
        allocate();
        check_device();
    }
}

ggml_tensor * llama_heads_plan::indices(const std::vector<int32_t> & values) {
    ggml_tensor * t = ggml_new_tensor_1d(ctx_fixed.get(), GGML_TYPE_I32, values.size());
    constants.push_back({ t, values });
    return t;
}

// the first rows of weights, a multiple of LLAMA_HEADS_PACKED_ROWS or all
ggml_tensor * llama_heads_plan::first_rows(ggml_tensor * weight, int64_t n_rows) {
    if (n_rows == weight->ne[1]) {
        return weight;
    }
    ggml_tensor * view = ggml_view_2d(ctx.get(), weight, weight->ne[0], n_rows, weight->nb[1], 0);
    view->extra = weight->extra; // its packed rows are the first of all packed rows
    return view;
}

// sums of the level's products, of its nodes and all heads from d on that the tree asks
ggml_tensor * llama_heads_plan::build_sums(size_t d, ggml_tensor * x, ggml_tensor * above) {
    const auto & w = *heads.weights;

    const int64_t n_head = 2*heads.spec.n_embd; // sums of a head
    const int64_t n_sums = n_head % LLAMA_HEADS_PACKED_ROWS == 0 ? n_head*(int64_t) (levels.size() - d) : w.slots[d]->ne[1];

    // no head beyond the depth of this tree is asked
    ggml_tensor * sums = ggml_mul_mat(ctx.get(), first_rows(w.slots[d], n_sums), x);
    if (heads.host_ops) {
        return sums; // completed by llama_heads_first_block
    }
    if (d == 0) {
        return ggml_add(ctx.get(), sums, ggml_view_1d(ctx.get(), w.first_bias, n_sums, 0));
    }
    std::vector<int32_t> rows;
    for (const auto & row : levels[d].rows) {
        rows.push_back(row.above);
    }
    // the sums of the nodes above, but for the head that these have answered
    ggml_tensor * later = ggml_view_2d(ctx.get(), above, sums->ne[0], above->ne[1], above->nb[1], 2*heads.spec.n_embd*sizeof(float));
    return ggml_add(ctx.get(), sums, ggml_get_rows(ctx.get(), later, indices(rows)));
}

// the first block of grounded heads, R u + SiLU(L u), by operations of ggml
ggml_tensor * llama_heads_plan::build_x(ggml_tensor * sums) {
    const int64_t n = heads.spec.n_embd;
    ggml_tensor * l = ggml_view_2d(ctx.get(), sums, n, sums->ne[1], sums->nb[1], 0);
    ggml_tensor * r = ggml_view_2d(ctx.get(), sums, n, sums->ne[1], sums->nb[1], n*sizeof(float));
    if (!ggml_is_contiguous(l)) { // more than one row
        l = ggml_cont(ctx.get(), l); // the SILU of CUDA wants it so
    }
    return ggml_add(ctx.get(), ggml_silu(ctx.get(), l), r);
}

// the blocks that are left, and the vocabulary head
ggml_tensor * llama_heads_plan::build_blocks(size_t d, ggml_tensor * x) {
    const auto & w = *heads.weights;

    for (const auto & block : w.blocks[d]) {
        ggml_tensor * y = ggml_mul_mat(ctx.get(), block.weight, x);
        if (heads.host_ops) {
            x = llama_heads_residual(ctx.get(), x, y, block.bias);
        } else {
            x = ggml_add(ctx.get(), x, ggml_silu(ctx.get(), ggml_add(ctx.get(), y, block.bias)));
        }
    }
    const int64_t n_rows = heads.spec.n_rows((int) d);

    ggml_tensor * logits = ggml_mul_mat(ctx.get(), first_rows(w.outputs[d].weight, n_rows), x);
    if (w.outputs[d].bias && !heads.host_ops) {
        logits = ggml_add(ctx.get(), logits, ggml_view_1d(ctx.get(), w.outputs[d].bias, n_rows, 0));
    }
    return logits;
}

// the best k tokens of each row where the device lacks TOPK_STATS, or lacks it for so many
llama_heads_plan::outputs llama_heads_plan::build_stock_pick(ggml_tensor * logits, int64_t k) {
    const int64_t n = logits->ne[1];

    // one number of each row at the given places
    const auto pick = [&](ggml_tensor * rows, ggml_tensor * places) {
        return ggml_get_rows(ctx.get(), ggml_reshape_3d(ctx.get(), rows, 1, rows->ne[0], n), places);
    };

    ggml_tensor * top   = ggml_top_k(ctx.get(), logits, k); // in any order
    ggml_tensor * found = ggml_reshape_2d(ctx.get(), pick(logits, top), k, n);
    ggml_tensor * order = ggml_argsort(ctx.get(), found, GGML_SORT_ORDER_DESC);
    ggml_tensor * ids   = pick(top, order);
    ggml_tensor * p     = pick(ggml_soft_max(ctx.get(), logits), ggml_reshape_2d(ctx.get(), ids, k, n));
    return { ids, p };
}

// the best tokens of each row by operations of ggml. returns the embeddings of the nodes of the next level
ggml_tensor * llama_heads_plan::build_pick(size_t d, ggml_tensor * logits) {
    const int64_t k = levels[d].width();

    ggml_tensor * stats = nullptr;
    if (k <= GGML_TOPK_STATS_MAX_K && !heads.stock_top_k) {
        stats = ggml_topk_stats(ctx.get(), logits, k);
        if (!ggml_backend_dev_supports_op(heads.dev, stats)) {
            stats = nullptr;
        }
    }
    outs.push_back(stats ? outputs { stats, nullptr } : build_stock_pick(logits, k));

    for (ggml_tensor * t : { outs.back().ids, outs.back().p }) {
        if (t) {
            ggml_set_output(t);
            ggml_build_forward_expand(gf, t);
        }
    }
    if (d + 1 == levels.size() || !heads.spec.grounded) {
        return nullptr;
    }
    if (!stats) {
        return build_next(d, ggml_reshape_2d(ctx.get(), outs.back().ids, 1, k*logits->ne[1]), k);
    }
    // no more than the ids are read, but all numbers together are contiguous
    ggml_tensor * ids = ggml_topk_stats_ids(ctx.get(), stats);
    return build_next(d, ggml_view_2d(ctx.get(), ids, 1, ggml_nelements(stats), sizeof(int32_t), 0), stats->ne[0]);
}

// embeddings of the nodes of level d + 1
//   ids     [1, ..], where rows of level d have their best tokens
//   stride  from one row's to the next one's
ggml_tensor * llama_heads_plan::build_next(size_t d, ggml_tensor * ids, int64_t stride) {
    std::vector<int32_t> places(levels[d].n_next_rows());
    for (size_t row = 0; row < levels[d].rows.size(); ++row) {
        for (const auto & child : levels[d].rows[row].children) {
            if (child.next_row >= 0) {
                places[child.next_row] = (int32_t) (row*stride + child.rank);
            }
        }
    }
    ggml_tensor * rows = ggml_get_rows(ctx.get(), ids, indices(places));
    return ggml_get_rows(ctx.get(), heads.weights->table, ggml_reshape_1d(ctx.get(), rows, places.size()));
}

void llama_heads_plan::build() {
    const auto &  spec    = heads.spec;
    const auto &  w       = *heads.weights;
    const size_t  n_level = 40 + 4*spec.n_layers;
    const size_t  n_nodes = levels.size()*n_level;
    const size_t  n_bytes = ggml_tensor_overhead()*n_nodes + ggml_graph_overhead_custom(n_nodes, false);

    ctx      .reset(ggml_init({ n_bytes + levels.size()*ggml_graph_overhead_custom(n_level, false), nullptr, true }));
    ctx_fixed.reset(ggml_init({ ggml_tensor_overhead()*(2 + 2*levels.size()), nullptr, true }));
    if (!ctx || !ctx_fixed) {
        throw std::runtime_error("memory does not suffice");
    }
    gf = ggml_new_graph_custom(ctx.get(), n_nodes, false);

    input_data.resize((spec.grounded ? 2 : 1)*spec.n_embd);
    input = ggml_new_tensor_2d(ctx_fixed.get(), GGML_TYPE_F32, input_data.size(), 1);
    ggml_set_input(input);

    host.resize(levels.size());

    ggml_tensor * x    = input;
    ggml_tensor * sums = nullptr;
    for (size_t d = 0; d < levels.size(); ++d) {
        host[d] = {
            &levels[d], &heads.model, w.d2t.empty() ? nullptr : w.d2t.data(),
            d == 0 && w.first_bias ? (const float *) w.first_bias->data : nullptr,
            w.outputs[d].bias ? (const float *) w.outputs[d].bias->data : nullptr,
            spec.n_embd, tokens.data(), q.data(), top1.data() + d, {}, {} };

        if (spec.grounded) {
            ggml_tensor * above = sums;
            sums = build_sums(d, x, above);
            x = heads.host_ops ? llama_heads_first_block(ctx.get(), sums, above, &host[d]) : build_x(sums);
        }
        ggml_tensor * logits = build_blocks(d, spec.grounded ? x : input);
        if (heads.host_ops) {
            const int first = ggml_graph_n_nodes(gf);
            x = llama_heads_pick(ctx.get(), logits, &host[d]);
            ggml_build_forward_expand(gf, x);
            add_level_graph(first);
        } else {
            x = build_pick(d, logits);
        }
    }
}

// The nodes of gf from `first` on as a graph of their own. Memory is given to gf, whose nodes may share it one after the other: so
// these graphs can be computed in their order, each once, as far as wanted.
void llama_heads_plan::add_level_graph(int first) {
    const int n = ggml_graph_n_nodes(gf);
    level_graphs.push_back(ggml_new_graph_custom(ctx.get(), n - first, false));
    for (int i = first; i < n; ++i) {
        ggml_graph_add_node(level_graphs.back(), ggml_graph_node(gf, i));
    }
}

// room for all outputs in one piece
void llama_heads_plan::add_results() {
    auto * buft = ggml_backend_dev_buffer_type(heads.dev);
    size_t size = 0;
    for (const auto & out : outs) {
        for (const ggml_tensor * t : { out.ids, out.p }) {
            if (t) {
                // what an operation may use behind its result included
                size += GGML_PAD(ggml_backend_buft_get_alloc_size(buft, t), ggml_backend_buft_get_alignment(buft));
            }
        }
    }
    if (size > 0) {
        results = ggml_new_tensor_1d(ctx_fixed.get(), GGML_TYPE_I8, size);
        results_data.resize(size);
    }
}

void llama_heads_plan::allocate() {
    auto * buft = ggml_backend_dev_buffer_type(heads.dev);

    buffer_fixed.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_fixed.get(), buft));
    if (!buffer_fixed) {
        throw std::runtime_error("memory does not suffice");
    }
    for (const auto & [tensor, values] : constants) {
        ggml_backend_tensor_set(tensor, values.data(), 0, values.size()*sizeof(int32_t));
    }

    char * next = results ? (char *) results->data : nullptr;
    for (const auto & out : outs) {
        for (ggml_tensor * t : { out.ids, out.p }) {
            if (t) {
                ggml_backend_tensor_alloc(results->buffer, t, next);
                next += GGML_PAD(ggml_backend_buft_get_alloc_size(buft, t), ggml_backend_buft_get_alignment(buft));
            }
        }
    }

    alloc.reset(ggml_gallocr_new(buft));
    if (!alloc || !ggml_gallocr_alloc_graph(alloc.get(), gf)) {
        throw std::runtime_error("memory does not suffice");
    }
}

// A device may lack an operation, or have it for some sizes or types only. It computes the whole graph, or none of it: nothing
// here moves a node or a tensor to another device.
void llama_heads_plan::check_device() const {
    const auto * buft = ggml_backend_dev_buffer_type(heads.dev);

    const auto lies_there = [&](const ggml_tensor * t) {
        const auto buffer = t->view_src ? t->view_src->buffer : t->buffer;
        return buffer && ggml_backend_buffer_get_type(buffer) == buft;
    };
    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * node = ggml_graph_node(gf, i);
        if (node->op != GGML_OP_CUSTOM && !ggml_backend_dev_supports_op(heads.dev, node)) {
            throw std::runtime_error(format("%s does not have %s as it is needed", ggml_backend_dev_name(heads.dev), ggml_op_name(node->op)));
        }
        bool all_there = lies_there(node);
        for (int j = 0; j < GGML_MAX_SRC && node->src[j]; ++j) {
            all_there = all_there && lies_there(node->src[j]);
        }
        if (!all_there) {
            throw std::runtime_error(format("%s would need tensors of another device for %s", ggml_backend_dev_name(heads.dev), ggml_op_name(node->op)));
        }
    }
}

int32_t llama_heads_plan::n_splits() {
    if (!gf) {
        return 0;
    }
    std::vector<ggml_backend_ptr> backends;
    backends.emplace_back(ggml_backend_dev_init(heads.dev, nullptr));
    if (ggml_backend_dev_type(heads.dev) != GGML_BACKEND_DEVICE_TYPE_CPU) {
        backends.emplace_back(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    }
    std::vector<ggml_backend_t> handles;
    for (const auto & backend : backends) {
        if (!backend) {
            throw std::runtime_error("memory does not suffice");
        }
        handles.push_back(backend.get());
    }
    ggml_backend_sched_ptr sched(ggml_backend_sched_new(handles.data(), nullptr, (int) handles.size(), 2*ggml_graph_size(gf), false, false));
    ggml_backend_sched_split_graph(sched.get(), gf);
    return ggml_backend_sched_get_n_splits(sched.get());
}

int64_t llama_heads_plan::n_bytes_sent() const {
    return gf && !heads.host_ops ? (int64_t) ggml_nbytes(input) : 0;
}

int64_t llama_heads_plan::n_bytes_fetched() const {
    return (int64_t) results_data.size();
}

void llama_heads_plan::set_input(const float * hidden, llama_token root) {
    const int32_t n = heads.spec.n_embd;

    tokens[0] = root;
    if (!gf) {
        return;
    }
    std::copy_n(hidden, n, input_data.data());
    if (heads.spec.grounded) {
        llama_heads_embedding(heads.model, root, input_data.data() + n);
    }
    ggml_backend_tensor_set(input, input_data.data(), 0, input_data.size()*sizeof(float));
    std::fill(top1.begin(), top1.end(), 0.0f);
}

void llama_heads_plan::read_results() {
    const auto & d2t = heads.weights->d2t;

    if (results) {
        ggml_backend_tensor_get(results, results_data.data(), 0, results_data.size());
    }
    const auto fetched = [&](const ggml_tensor * t) {
        return results_data.data() + ((const char *) t->data - (const char *) results->data);
    };
    for (size_t d = 0; d < outs.size(); ++d) {
        const auto &  out    = outs[d];
        const auto &  level  = levels[d];
        const int64_t k      = level.width();
        const int64_t stride = out.p ? k : out.ids->ne[0];

        for (size_t row = 0; row < level.rows.size(); ++row) {
            const int64_t   first = heads.spec.grounded ? row*stride : 0; // else one row for all nodes
            const int32_t * ids   = (const int32_t *) fetched(out.ids) + first;
            const float *   stats = (const float *) ids; // of TOPK_STATS: k ids, k logits, their logsumexp
            const auto p_of = [&](int32_t rank) {
                return out.p ? ((const float *) fetched(out.p))[first + rank] : std::exp(stats[k + rank] - stats[2*k]);
            };
            for (const auto & child : level.rows[row].children) {
                const int32_t id = ids[child.rank];
                tokens[child.node] = d2t.empty() ? id : d2t[id];
                q     [child.node] = p_of(child.rank);
            }
            if ((int32_t) row == level.greedy) {
                top1[d] = p_of(0);
            }
        }
    }
}

bool llama_heads_plan::goes_on(float least_p) {
    bool likely = least_p <= 0;
    for (const auto & row : levels[n_levels].rows) {
        for (const auto & child : row.children) {
            p[child.node] = p[row.node]*q[child.node];
            likely = likely || (child.next_row >= 0 && p[child.node] >= least_p);
        }
    }
    n_levels++;
    if (likely && n_levels < (int32_t) levels.size()) {
        return true;
    }
    for (size_t d = n_levels; d < levels.size(); ++d) {
        for (const auto & row : levels[d].rows) {
            for (const auto & child : row.children) {
                tokens[child.node] = LLAMA_TOKEN_NULL;
                q     [child.node] = 0.0f;
            }
        }
        top1[d] = 0.0f;
    }
    return false;
}
