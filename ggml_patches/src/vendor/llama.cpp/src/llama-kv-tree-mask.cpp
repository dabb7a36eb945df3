#include "llama-kv-cache.h"

#include "llama-batch.h"
#include "llama-hparams.h"

#include <algorithm>

// words of node bits: always all of them, so that a tree of any shape goes through the same graph
static constexpr int32_t n_words = LLAMA_KV_TREE_MAX_NODES/32;

// what a cell of no sequence of the batch says
static constexpr int32_t no_owner = -1;

static_assert(LLAMA_MAX_SEQ <= GGML_TREE_MASK_MAX_OWNERS, "the owner of a cell is a sequence");

static ggml_tree_window window_of(llama_swa_type type) {
    switch (type) {
        case LLAMA_SWA_TYPE_STANDARD: return GGML_TREE_WINDOW_SLIDING;
        case LLAMA_SWA_TYPE_CHUNKED:  return GGML_TREE_WINDOW_CHUNKED;
        default:                      return GGML_TREE_WINDOW_NONE;
    }
}

bool llama_kv_cache::can_tree_mask(const llama_ubatch & ubatch) const {
    if (n_stream > 1 || other || hparams.use_alibi || swa_type == LLAMA_SWA_TYPE_SYMMETRIC || ubatch.is_pos_2d()) {
        return false;
    }
    if (ubatch.n_seqs_unq == 1) {
        return true;
    }

    // a cell names one owner: no two sequences of the batch may share it
    const auto & cells = v_cells[0];

    llama_kv_cells::seq_set_t batch;
    for (uint32_t s = 0; s < ubatch.n_seqs_unq; ++s) {
        batch.set(ubatch.seq_id_unq[s]);
    }

    const uint32_t n = cells.used_max_p1();
    for (uint32_t j = 0; j < n; ++j) {
        if ((cells.seq_get_all(j) & batch).count() > 1) {
            return false;
        }
    }
    return true;
}

ggml_tensor * llama_kv_cache::build_tree_mask(
        ggml_context * ctx, ggml_type type, uint32_t n_kv, uint32_t n_tokens, llm_graph_tree_mask & inputs) const {
    const auto window = window_of(swa_type);

    ggml_tensor * cells  = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_kv);
    ggml_tensor * tokens = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2 + n_words, n_tokens);
    ggml_tensor * pos    = window == GGML_TREE_WINDOW_NONE ? nullptr : ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_kv);

    ggml_set_input(cells);
    ggml_set_input(tokens);
    ggml_set_name(cells,  "tree_cells");
    ggml_set_name(tokens, "tree_tokens");
    if (pos) {
        ggml_set_input(pos);
        ggml_set_name(pos, "tree_cell_pos");
    }

    inputs = { cells, tokens, pos };

    return ggml_tree_mask(ctx, cells, tokens, pos, type, window, n_swa);
}

void llama_kv_cache::set_input_tree_mask(const llm_graph_tree_mask & inputs, const llama_ubatch & ubatch) const {
    for (const auto * t : { inputs.cells, inputs.tokens, inputs.pos }) {
        GGML_ASSERT(!t || ggml_backend_buffer_is_host(t->buffer));
    }

    const auto & cells = v_cells[0];

    const int64_t n_kv = inputs.cells->ne[0];

    int32_t * owner = (int32_t *) inputs.cells->data;

    // what is below the trees. where one sequence holds all cells in use, the sets of sequences need no look: 32 bytes a cell
    const llama_seq_id first = ubatch.seq_id_unq[0];
    if (ubatch.n_seqs_unq == 1 && cells.seq_pos_get(first).size() == cells.get_used()) {
        for (int64_t j = 0; j < n_kv; ++j) {
            owner[j] = cells.is_empty(j) ? no_owner : GGML_TREE_CELL(first, -1);
        }
    } else {
        std::fill(owner, owner + n_kv, no_owner);
        for (uint32_t s = 0; s < ubatch.n_seqs_unq; ++s) {
            const llama_seq_id seq_id = ubatch.seq_id_unq[s];
            for (int64_t j = 0; j < n_kv; ++j) {
                if (!cells.is_empty(j) && cells.seq_has(j, seq_id)) {
                    owner[j] = GGML_TREE_CELL(seq_id, -1);
                }
            }
        }
    }

    // the nodes
    for (uint32_t s = 0; s < ubatch.n_seqs_unq; ++s) {
        const llama_seq_id seq_id = ubatch.seq_id_unq[s];
        const auto &       placed = tree_cells.at(seq_id);
        for (size_t g = 0; g < placed.size(); ++g) {
            if (placed[g] >= 0) {
                owner[placed[g]] = GGML_TREE_CELL(seq_id, g);
            }
        }
    }

    int32_t * token = (int32_t *) inputs.tokens->data;

    for (uint32_t i = 0; i < ubatch.n_tokens; ++i, token += 2 + n_words) {
        const llama_seq_id seq_id = ubatch.seq_id[i][0];

        const auto * tree = trees->get(seq_id);

        token[0] = seq_id;
        token[1] = ubatch.pos[i];

        int32_t * words = token + 2;
        std::fill(words, words + n_words, 0);
        for (int32_t g = trees->staged_node(ubatch.data->batch_idxs[i]); g >= 0; g = tree->parent[g]) {
            words[g/32] |= (int32_t) (1u << g%32);
        }
    }

    if (inputs.pos) {
        int32_t * pos = (int32_t *) inputs.pos->data;
        for (int64_t j = 0; j < n_kv; ++j) {
            pos[j] = cells.is_empty(j) ? 0 : cells.pos_get(j);
        }
    }
}
