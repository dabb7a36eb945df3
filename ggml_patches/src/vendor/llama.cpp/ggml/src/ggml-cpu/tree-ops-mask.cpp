// GGML_OP_TREE_MASK

#include "tree-ops.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cstdint>

namespace {

struct mask_args {
    const int32_t *  cells;
    const int32_t *  pos; // null without a window
    const char *     tokens;
    size_t           token_size;
    int32_t          n_words; // of the bits of a token
    ggml_tree_window window;
    int32_t          n_window;

    explicit mask_args(const ggml_tensor * dst) :
        cells     ((const int32_t *) dst->src[0]->data),
        pos       (dst->src[2] ? (const int32_t *) dst->src[2]->data : nullptr),
        tokens    ((const char *) dst->src[1]->data),
        token_size(dst->src[1]->nb[1]),
        n_words   ((int32_t) dst->src[1]->ne[0] - 2),
        window    ((ggml_tree_window) ggml_get_op_params_i32(dst, 0)),
        n_window  (ggml_get_op_params_i32(dst, 1)) {}

    const int32_t * token(int64_t i) const { return (const int32_t *) (tokens + i*token_size); }

    // a node without a bit is not seen
    bool names(const int32_t * token, int32_t node) const {
        return node < 32*n_words && (token[2 + node/32] >> (node%32) & 1);
    }

    // the smallest position that a token sees
    int32_t first_pos(const int32_t * token) const {
        switch (window) {
            case GGML_TREE_WINDOW_SLIDING: return (int32_t) std::max<int64_t>((int64_t) token[1] - n_window + 1, INT32_MIN);
            case GGML_TREE_WINDOW_CHUNKED: return token[1]/n_window*n_window;
            default:                       return INT32_MIN;
        }
    }
};

// the bits of -INF; those of 0 are 0 in both types
template <typename T> constexpr T HIDDEN = sizeof(T) == 2 ? (T) 0xfc00 : (T) 0xff800000;

int32_t owner_of(int32_t cell) { return cell >> 16; }
int32_t node_of (int32_t cell) { return (cell & 0xffff) - 1; }

// plainly, one element at a time
template <typename T>
void reference_tree_mask(ggml_tensor * dst, int ith, int nth) {
    const mask_args args(dst);

    for (int64_t i = ith; i < dst->ne[1]; i += nth) {
        const int32_t * token = args.token(i);
        const int32_t   first = args.first_pos(token);
        T *             row   = (T *) ((char *) dst->data + i*dst->nb[1]);

        for (int64_t j = 0; j < dst->ne[0]; ++j) {
            const int32_t cell = args.cells[j];

            const bool mine = cell >= 0 && owner_of(cell) == token[0] && (!args.pos || args.pos[j] >= first);

            row[j] = mine && (node_of(cell) < 0 || args.names(token, node_of(cell))) ? 0 : HIDDEN<T>;
        }
    }
}

constexpr int64_t CHUNK = 2048; // cells that are compared with all tokens while they are in the first cache

// what is below the tree of one owner: the part of the mask that its tokens share
template <typename T>
void find_below(const int32_t * GGML_RESTRICT cells, int64_t n, int32_t owner, T * GGML_RESTRICT below) {
    const int32_t cell = GGML_TREE_CELL(owner, -1);
    for (int64_t j = 0; j < n; ++j) {
        below[j] = cells[j] == cell ? 0 : HIDDEN<T>;
    }
}

template <typename T>
void show_below(const T * GGML_RESTRICT below, const int32_t * GGML_RESTRICT pos, int64_t n, int32_t first, T * GGML_RESTRICT row) {
    if (!pos) {
        std::copy(below, below + n, row);
        return;
    }
    for (int64_t j = 0; j < n; ++j) {
        row[j] = below[j] | (pos[j] >= first ? 0 : HIDDEN<T>);
    }
}

struct node_cell {
    int32_t j;
    int32_t owner;
    int32_t word; // of the bits of a token
    int32_t bit;
};

// the cells whose nodes have a bit, nearly always few
int32_t find_nodes(const int32_t * cells, int64_t n, int32_t n_words, node_cell * nodes) {
    constexpr int64_t STEP = 64;

    int32_t n_nodes = 0;
    for (int64_t j0 = 0; j0 < n; j0 += STEP) {
        const int64_t j1 = std::min(j0 + STEP, n);

        int32_t any = 0;
        for (int64_t j = j0; j < j1; ++j) {
            any |= cells[j] >= 0 ? cells[j] & 0xffff : 0;
        }
        for (int64_t j = j0; any && j < j1; ++j) {
            const int32_t node = node_of(cells[j]);
            if (cells[j] >= 0 && node >= 0 && node < 32*n_words) {
                nodes[n_nodes++] = { (int32_t) j, owner_of(cells[j]), 2 + node/32, node%32 };
            }
        }
    }
    return n_nodes;
}

template <typename T>
void fast_tree_mask(ggml_tensor * dst, int ith, int nth) {
    const mask_args args(dst);

    // a thread takes columns, in whole cache lines: cells are read once, and one token is work for all threads
    const int64_t line  = 64/sizeof(T);
    const int64_t share = ((dst->ne[0] + nth - 1)/nth + line - 1)/line*line;
    const int64_t begin = std::min(dst->ne[0], ith*share);
    const int64_t end   = std::min(dst->ne[0], begin + share);

    for (int64_t j0 = begin; j0 < end; j0 += CHUNK) {
        const int64_t   n     = std::min(CHUNK, end - j0);
        const int32_t * cells = args.cells + j0;
        const int32_t * pos   = args.pos ? args.pos + j0 : nullptr;

        node_cell     nodes[CHUNK];
        const int32_t n_nodes = find_nodes(cells, n, args.n_words, nodes);

        T       below[CHUNK];
        int32_t owner = -1;
        for (int64_t i = 0; i < dst->ne[1]; ++i) {
            const int32_t * token = args.token(i);
            const int32_t   first = args.first_pos(token);
            T *             row   = (T *) ((char *) dst->data + i*dst->nb[1]) + j0;

            if (token[0] < 0 || token[0] > GGML_TREE_MASK_MAX_OWNERS) {
                std::fill(row, row + n, HIDDEN<T>);
                continue;
            }
            if (token[0] != owner) { // the tokens of one owner mostly stand together
                owner = token[0];
                find_below(cells, n, owner, below);
            }
            show_below(below, pos, n, first, row);

            for (int32_t g = 0; g < n_nodes; ++g) { // without branches, which would be random
                const node_cell & node = nodes[g];
                const bool seen = (node.owner == token[0]) & (token[node.word] >> node.bit & 1) & (!pos || pos[node.j] >= first);
                row[node.j] = seen ? 0 : HIDDEN<T>;
            }
        }
    }
}

} // namespace

void ggml_compute_forward_tree_mask(const ggml_compute_params * params, ggml_tensor * dst) {
    const bool f16 = dst->type == GGML_TYPE_F16;
    if (params->use_ref) {
        (f16 ? reference_tree_mask<uint16_t> : reference_tree_mask<uint32_t>)(dst, params->ith, params->nth);
    } else {
        (f16 ? fast_tree_mask<uint16_t> : fast_tree_mask<uint32_t>)(dst, params->ith, params->nth);
    }
}
