#pragma once

// Token trees for speculative decoding.
//
// A tree hangs below the end of a sequence. All its nodes live in that one sequence: a node of depth d has position
// n_past + d and attends to the sequence and to its own ancestors, not to its siblings. Verifying a tree is one decode;
// accepting one of its paths turns these nodes into an ordinary continuation of the sequence and frees the others.
//
//   llama_tree_begin (ctx, seq);
//   llama_tree_decode(ctx, n, tokens, parents, seqs, outputs);   // as often as wanted: the tree grows
//   ... llama_tree_logits / llama_tree_stats / llama_tree_hidden on the rows of the last decode ...
//   llama_tree_accept(ctx, seq, path, n_path);                   // or llama_tree_drop(ctx, seq)
//
// Functions that return int32_t give 0 on success and one of LLAMA_TREE_* otherwise; the reason is logged. After every
// failure except LLAMA_TREE_FULL and LLAMA_TREE_INVALID the trees of the sequences involved are dropped, so the
// sequences are plain chains again.

#include "llama.h"

#define LLAMA_LOCALSPEC_ABI  8
#define LLAMA_TREE_MAX_NODES 256
#define LLAMA_TREE_MAX_TOP_K 16

#ifdef __cplusplus
extern "C" {
#endif

enum llama_tree_status {
    LLAMA_TREE_OK          =  0,
    LLAMA_TREE_FULL        =  1, // no room in the KV cache; the open trees are as before the call
    LLAMA_TREE_ABORTED     =  2, // the abort callback asked for it
    LLAMA_TREE_INVALID     = -1, // bad arguments; nothing happened
    LLAMA_TREE_UNSUPPORTED = -2, // see llama_tree_unsupported()
    LLAMA_TREE_FAILED      = -3, // allocation or computation failed
};

// version of this interface; a caller should check for equality
LLAMA_API int32_t llama_localspec_abi(void);

// why this context cannot hold trees, or NULL if it can; the text is static
LLAMA_API const char * llama_tree_unsupported(const struct llama_context * ctx);

// give each of the n_seq_max sequences of a context with a unified cache, still empty, an equal part of its cells, which
// it fills in order. then a decode of several sequences is one pass, and what a sequence computes does not depend on
// what the others do. returns LLAMA_TREE_UNSUPPORTED if the memory cannot; a sliding window needs swa_full
LLAMA_API int32_t llama_tree_partition(struct llama_context * ctx);

// in a partitioned context: copy the first n tokens of sequence src, with their K/V rows, to the empty sequence dst.
// returns LLAMA_TREE_UNSUPPORTED if src does not hold them, or if the cache is not in host memory
LLAMA_API int32_t llama_tree_copy_prefix(struct llama_context * ctx, llama_seq_id src, llama_seq_id dst, int32_t n);

// open an empty tree at the end of a sequence
LLAMA_API int32_t llama_tree_begin(struct llama_context * ctx, llama_seq_id seq);

// append n nodes to open trees and evaluate them
//   parents[i]  node number within the tree of its sequence, -1: child of the end of the sequence. parents come first
//   seqs[i]     sequence of the node; NULL: all in sequence 0. nodes of several sequences may be mixed
//   outputs[i]  whether row i is wanted; NULL: all
// a tree numbers its nodes in order of arrival, over all calls
LLAMA_API int32_t llama_tree_decode(
        struct llama_context * ctx,
                     int32_t   n,
           const llama_token * tokens,
               const int32_t * parents,
          const llama_seq_id * seqs,
                const int8_t * outputs);

// number of nodes of the open tree, -1 if there is none
LLAMA_API int32_t llama_tree_n_nodes(const struct llama_context * ctx, llama_seq_id seq);

// keep the nodes of one path (its first node is a child of the sequence's end, each further one a child of the one
// before), free the others and close the tree. the kept K/V rows end up in the cells that plain decoding would have
// used, moved there only if they are not there already and the cache is in host memory
LLAMA_API int32_t llama_tree_accept(struct llama_context * ctx, llama_seq_id seq, const int32_t * path, int32_t n_path);

// free all nodes and close the tree; no effect if there is none
LLAMA_API void llama_tree_drop(struct llama_context * ctx, llama_seq_id seq);

//
// results of the last llama_tree_decode, valid until the next decode; i is the index of a node in that call
//

// logits of one node, [n_vocab]; NULL if it has none. nothing is copied when the logits are in host memory
LLAMA_API const float * llama_tree_logits(struct llama_context * ctx, int32_t i);

// fill the [n_vocab] candidates of a sampler chain from the logits of one node: ids in order, p = 0
LLAMA_API int32_t llama_tree_candidates(struct llama_context * ctx, int32_t i, llama_token_data * candidates);

// hidden state after the final norm, [n_embd_out]; NULL if there is none
LLAMA_API const float * llama_tree_hidden(struct llama_context * ctx, int32_t i);

// top-k ids and logits (largest first, ties by smaller id), logsumexp and entropy (nats) of n nodes
//   ids, logits   [n*k], 0 <= k <= LLAMA_TREE_MAX_TOP_K
//   lse, entropy  [n], or both NULL: not computed
// returns LLAMA_TREE_INVALID if a node has no logits
LLAMA_API int32_t llama_tree_stats(
        struct llama_context * ctx,
                     int32_t   n,
               const int32_t * nodes,
                     int32_t   k,
                 llama_token * ids,
                       float * logits,
                       float * lse,
                       float * entropy);

// have tree decodes compute the statistics of their rows, with up to k candidates, where the device that holds the logits has
// an operation for it; llama_tree_stats() then fetches them all at once, in place of whole rows. candidates are the same as
// without, logsumexp and entropy agree to about 1e-5. 0, the state of a new context: off. 0 <= k <= LLAMA_TREE_MAX_TOP_K
LLAMA_API int32_t llama_tree_set_stats(struct llama_context * ctx, int32_t k);

//
// introspection, for tests and diagnostics
//

// whether the last tree decode made its attention masks, and computed the statistics of its rows, by operations in its graph.
// they are used where a probe finds that they run on the device of their operands; on the CPU, where they are faster
//   environment, read when a context is made: LLAMA_TREE_MASK, LLAMA_TREE_STATS - 0: never, 1: also where it does not pay
LLAMA_API bool llama_tree_mask_on_device (const struct llama_context * ctx);
LLAMA_API bool llama_tree_stats_on_device(const struct llama_context * ctx);

// bytes of rows, statistics and hidden states copied from devices, and of inputs copied to them, by the tree decodes of this
// context; 0 where a device shares the host's memory
LLAMA_API int64_t llama_tree_n_bytes_fetched(const struct llama_context * ctx);
LLAMA_API int64_t llama_tree_n_bytes_sent   (const struct llama_context * ctx);

// cells of the non-windowed KV cache that hold the sequence, in position order; returns their number (at most n are written)
LLAMA_API int32_t llama_tree_cells(const struct llama_context * ctx, llama_seq_id seq, int32_t * cells, int32_t n);

// number of compute graphs built since the context was created
LLAMA_API int64_t llama_tree_n_graph_builds(const struct llama_context * ctx);

#ifdef __cplusplus
}
#endif
