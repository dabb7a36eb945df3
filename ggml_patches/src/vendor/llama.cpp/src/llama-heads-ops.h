#pragma once

#include "llama-heads-tree.h"

#include "llama.h"

#include "ggml.h"

#include <cstdint>
#include <vector>

// What of a draft is no product, as custom operations of the CPU. One of them does the work of several operations of ggml: on
// vectors as small as these the threads would spend their time waiting for each other.

// A level of a plan: what its operations read and write. It stays where it is while the graph is used.
struct llama_heads_host_level {
    const llama_heads_level * level;
    const llama_model *       model;
    const int32_t *           d2t;         // nullptr: row i of the vocabulary head is token i
    const float *             first_bias;  // of level 0, nullptr in others
    const float *             output_bias; // nullptr: none
    int32_t                   n_embd;

    // results, of all nodes of the tree and of this level's head
    llama_token * tokens;
    float *       q;
    float *       top1;

    // best rows of the vocabulary head, [rows][width]
    std::vector<llama_token> best;
    std::vector<float>       best_logits;
};

// x = R u + SiLU(L u) of each row, [n_embd, rows]
//   sums   [2*n_embd*n_later, rows], products of this level; completed in place for the levels below
//   above  sums of the level before, nullptr at level 0
ggml_tensor * llama_heads_first_block(ggml_context * ctx, ggml_tensor * sums, ggml_tensor * above, llama_heads_host_level * level);

// x + SiLU(y + bias)
ggml_tensor * llama_heads_residual(ggml_context * ctx, ggml_tensor * x, ggml_tensor * y, ggml_tensor * bias);

// the best tokens of each row of logits, written to the results. returns the embeddings of the nodes of the next level
ggml_tensor * llama_heads_pick(ggml_context * ctx, ggml_tensor * logits, llama_heads_host_level * level);
