#pragma once

// Draft heads on the hidden state of a model: Hydra (arXiv 2402.05109) and Medusa (arXiv 2401.10774).
//
// Head i predicts the token at depth i + 1 of a tree whose root is the last token written. The tree is static: its shape, and
// which of a head's best tokens each node takes, are given beforehand. A plan holds the graph that drafts all of it, on the
// device where the model computes its logits. Plans are kept: drafting another tree is taking another plan. A level that would
// hang below unlikely nodes only can be left out at each draft: on the CPU its time is saved.
//
//   heads = llama_heads_load(model, "heads.gguf", 0);
//   plan  = llama_heads_plan_init(heads, n_nodes, parents, ranks);
//   llama_heads_draft(plan, ctx, hidden, root, 0.0f, tokens, q, top1, &n_levels);    // as often as wanted
//
// The file is the GGUF of architecture "hydra" that localspec writes. Heads with a prefix layer are refused. Heads after the first
// may look at the first rows of the vocabulary head only, those of frequent tokens: it is most of what a deep draft reads.
//
// Nothing is thrown; why something failed is logged. Heads live as long as their plans, the model as long as the heads. Plans of
// the same heads may be used by several threads at a time, one plan by one.

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

enum llama_heads_status {
    LLAMA_HEADS_OK      =  0,
    LLAMA_HEADS_ABORTED =  2, // the abort callback asked for it
    LLAMA_HEADS_INVALID = -1, // bad arguments; nothing happened
    LLAMA_HEADS_FAILED  = -3, // allocation or computation failed
};

enum llama_heads_flags {
    // graphs of operations that every device has, also where the CPU has faster ones; to test them without such a device
    LLAMA_HEADS_PORTABLE = 1,

    // these find the best tokens without GGML_OP_TOPK_STATS even on a device that has it; for tests as well
    LLAMA_HEADS_STOCK_TOP_K = 2,
};

struct llama_heads;
struct llama_heads_plan;

// returns NULL when the file cannot be used for this model
//   flags  of llama_heads_flags
LLAMA_API struct llama_heads * llama_heads_load(const struct llama_model * model, const char * path, uint32_t flags);

// after all its plans; NULL is fine
LLAMA_API void llama_heads_free(struct llama_heads * heads);

// the deepest tree that they can draft
LLAMA_API int32_t llama_heads_n_heads(const struct llama_heads * heads);

// bytes of weights held in memory, without plans
LLAMA_API int64_t llama_heads_n_bytes(const struct llama_heads * heads);

// name of the device that holds them; lives as long as they do
LLAMA_API const char * llama_heads_device(const struct llama_heads * heads);

// the graph of a static tree
//   parents  [n_nodes], -1 for node 0, the root; parents come first
//   ranks    [n_nodes], place of the node's token among the best ones of its parent's row, from 0; not read for the root
// returns NULL when these make no tree, when it is too deep or too wide for the heads, or when memory does not suffice
LLAMA_API struct llama_heads_plan * llama_heads_plan_init(
        const struct llama_heads * heads,
                         int32_t   n_nodes,
                   const int32_t * parents,
                   const int32_t * ranks);

LLAMA_API void llama_heads_plan_free(struct llama_heads_plan * plan);

// bytes that a draft copies to the device in one piece, and from it in another. 0 with the CPU's own operations, which read and
// write where the host does
LLAMA_API int64_t llama_heads_plan_n_bytes_sent   (const struct llama_heads_plan * plan);
LLAMA_API int64_t llama_heads_plan_n_bytes_fetched(const struct llama_heads_plan * plan);

// parts that ggml's scheduler makes of the graph of such a tree, when it may choose between the device of the heads and the CPU
// returns 1: nothing of it leaves the device, 0: there is nothing to draft, -1: no such graph can be made
LLAMA_API int32_t llama_heads_n_splits(
        const struct llama_heads * heads,
                         int32_t   n_nodes,
                   const int32_t * parents,
                   const int32_t * ranks);

// draft the tree, with the threads and back ends that ctx, a context of the same model, uses for a single token
//   hidden    [n_embd], hidden state after the final norm where the root was predicted
//   least_p   a level is drafted if a node that it hangs below has this p at the least, the product of q along its path. the
//             first level always is, and none below one that is not; all are when least_p <= 0. the same on all devices
//   tokens    [n_nodes], the root's is root, LLAMA_TOKEN_NULL in levels that are not drafted
//   q         [n_nodes], probability of a token under its head: softmax over the tokens that it can draft. the root's is 1,
//             0 in levels that are not drafted
//   top1      [depth of the tree], the largest probability of each head along the path of rank 0, as far as nodes of this path
//             have children and their level is drafted; 0 below
//   n_levels  levels that were drafted, the depth of the tree or fewer
LLAMA_API int32_t llama_heads_draft(
        struct llama_heads_plan * plan,
           struct llama_context * ctx,
                    const float * hidden,
                    llama_token   root,
                          float   least_p,
                    llama_token * tokens,
                          float * q,
                          float * top1,
                        int32_t * n_levels);

#ifdef __cplusplus
}
#endif
