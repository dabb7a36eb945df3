#include "llama-heads-graph.h"

#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

static constexpr int64_t PACKED_ROWS = 64; // at a multiple of so many rows packed weights can be cut

llama_heads_plan::llama_heads_plan(const llama_heads & heads, int32_t n_nodes, const int32_t * parents, const int32_t * ranks) :
    heads(heads), levels(llama_heads_levels(n_nodes, parents, ranks)), tokens(n_nodes), q(n_nodes, 1.0f), top1(levels.size()) {
    if ((int32_t) levels.size() > heads.spec.n_heads) {
        throw std::runtime_error(format("a tree of depth %zu is too deep for %d heads", levels.size(), heads.spec.n_heads));
    }
    for (const auto & level : levels) {
        if (level.width() > heads.spec.n_rows()) {
            throw std::runtime_error(format("rank %d is asked of a head that knows %d tokens", level.width() - 1, heads.spec.n_rows()));
        }
    }
    if (!levels.empty()) {
        build();
        check_support();
        allocate();
    }
}

ggml_tensor * llama_heads_plan::indices(const std::vector<int32_t> & values) {
    ggml_tensor * t = ggml_new_tensor_1d(ctx_indices.get(), GGML_TYPE_I32, values.size());
    constants.push_back({ t, values });
    return t;
}

// sums of the level's products, of its nodes and all heads from d on that the tree asks
ggml_tensor * llama_heads_plan::build_sums(size_t d, ggml_tensor * x, ggml_tensor * above) {
    const auto & w = *heads.weights;

    const int64_t n_head = 2*heads.spec.n_embd; // sums of a head
    const int64_t n_sums = n_head % PACKED_ROWS == 0 ? n_head*(int64_t) (levels.size() - d) : w.slots[d]->ne[1];

    ggml_tensor * slot = w.slots[d];
    if (n_sums < slot->ne[1]) { // no head beyond the depth of this tree is asked
        slot = ggml_view_2d(ctx.get(), slot, slot->ne[0], n_sums, slot->nb[1], 0);
        slot->extra = w.slots[d]->extra; // its packed rows are the first of all packed rows
    }
    ggml_tensor * sums = ggml_mul_mat(ctx.get(), slot, x);
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
    return ggml_add(ctx.get(), ggml_silu(ctx.get(), ggml_cont(ctx.get(), l)), r);
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
    ggml_tensor * logits = ggml_mul_mat(ctx.get(), w.outputs[d].weight, x);
    if (w.outputs[d].bias && !heads.host_ops) {
        logits = ggml_add(ctx.get(), logits, w.outputs[d].bias);
    }
    return logits;
}

// the best tokens of each row by operations of ggml. returns the embeddings of the nodes of the next level
ggml_tensor * llama_heads_plan::build_pick(size_t d, ggml_tensor * logits) {
    const auto &  level = levels[d];
    const int64_t k     = level.width();
    const int64_t n     = logits->ne[1];
    const bool    last  = d + 1 == levels.size();

    // one number of each row at the given places
    const auto pick = [&](ggml_tensor * rows, ggml_tensor * places) {
        return ggml_get_rows(ctx.get(), ggml_reshape_3d(ctx.get(), rows, 1, rows->ne[0], n), places);
    };

    ggml_tensor * top   = ggml_top_k(ctx.get(), logits, k); // in any order
    ggml_tensor * found = ggml_reshape_2d(ctx.get(), pick(logits, top), k, n);
    ggml_tensor * order = ggml_argsort(ctx.get(), found, GGML_SORT_ORDER_DESC);
    ggml_tensor * ids   = ggml_reshape_2d(ctx.get(), pick(top, order), k, n);
    ggml_tensor * p     = pick(ggml_soft_max(ctx.get(), logits), ids);

    for (ggml_tensor * t : { ids, p }) {
        ggml_set_output(t);
        ggml_build_forward_expand(gf, t);
    }
    outs.push_back({ ids, p });

    if (last || !heads.spec.grounded) {
        return nullptr;
    }
    std::vector<int32_t> places;
    for (size_t row = 0; row < level.rows.size(); ++row) {
        for (const auto & child : level.rows[row].children) {
            if (child.next_row >= 0) {
                places.resize(std::max<size_t>(places.size(), child.next_row + 1));
                places[child.next_row] = (int32_t) (row*k + child.rank);
            }
        }
    }
    ggml_tensor * rows = ggml_get_rows(ctx.get(), ggml_reshape_2d(ctx.get(), ids, 1, k*n), indices(places));
    return ggml_get_rows(ctx.get(), heads.weights->table, ggml_reshape_1d(ctx.get(), rows, places.size()));
}

void llama_heads_plan::build() {
    const auto &  spec    = heads.spec;
    const auto &  w       = *heads.weights;
    const size_t  n_nodes = levels.size()*(32 + 4*spec.n_layers);

    ctx        .reset(ggml_init({ ggml_tensor_overhead()*n_nodes + ggml_graph_overhead_custom(n_nodes, false), nullptr, true }));
    ctx_indices.reset(ggml_init({ ggml_tensor_overhead()*2*levels.size(), nullptr, true }));
    if (!ctx || !ctx_indices) {
        throw std::runtime_error("memory does not suffice");
    }
    gf = ggml_new_graph_custom(ctx.get(), n_nodes, false);

    input_data.resize((spec.grounded ? 2 : 1)*spec.n_embd);
    input = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, input_data.size(), 1);
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
            x = llama_heads_pick(ctx.get(), logits, &host[d]);
            ggml_build_forward_expand(gf, x);
        } else {
            x = build_pick(d, logits);
        }
    }
}

void llama_heads_plan::allocate() {
    auto * buft = ggml_backend_dev_buffer_type(heads.dev);
    if (!constants.empty()) {
        buffer_indices.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_indices.get(), buft));
        if (!buffer_indices) {
            throw std::runtime_error("memory does not suffice");
        }
        for (const auto & [tensor, values] : constants) {
            ggml_backend_tensor_set(tensor, values.data(), 0, values.size()*sizeof(int32_t));
        }
    }
    alloc.reset(ggml_gallocr_new(buft));
    if (!alloc || !ggml_gallocr_alloc_graph(alloc.get(), gf)) {
        throw std::runtime_error("memory does not suffice");
    }
}

// a device may lack an operation, or have it for some sizes only
void llama_heads_plan::check_support() const {
    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        ggml_tensor * node = ggml_graph_node(gf, i);
        if (node->op != GGML_OP_CUSTOM && !ggml_backend_dev_supports_op(heads.dev, node)) {
            throw std::runtime_error(format("%s does not have %s as it is needed", ggml_backend_dev_name(heads.dev), ggml_op_name(node->op)));
        }
    }
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

    std::vector<int32_t> ids;
    std::vector<float>   p;
    for (size_t d = 0; d < outs.size(); ++d) {
        const auto & level = levels[d];
        const int64_t k = outs[d].ids->ne[0];
        ids.resize(ggml_nelements(outs[d].ids));
        p  .resize(ggml_nelements(outs[d].p));
        ggml_backend_tensor_get(outs[d].ids, ids.data(), 0, ids.size()*sizeof(int32_t));
        ggml_backend_tensor_get(outs[d].p,   p  .data(), 0, p  .size()*sizeof(float));

        for (size_t row = 0; row < level.rows.size(); ++row) {
            const size_t first = heads.spec.grounded ? row*k : 0;
            for (const auto & child : level.rows[row].children) {
                const int32_t id = ids[first + child.rank];
                tokens[child.node] = d2t.empty() ? id : d2t[id];
                q     [child.node] = p[first + child.rank];
            }
            if ((int32_t) row == level.greedy) {
                top1[d] = p[first];
            }
        }
    }
}
