#pragma once

// A drafter without a model: it grows trees of likely next tokens from what it has seen.
//
// The text so far proposes what followed where its end occurred before, a corpus what followed there; rows of logits of
// earlier verifications propose what the model thought of at such places. What speaks for a token is its evidence. Each
// kind of evidence has a running rate of being right, and a tree grows by its most likely node.
//
//   llama_drafter_extend (d, prompt, n_prompt);
//   n = llama_drafter_propose(d, max_nodes, least_p, parents, tokens, p);
//   ... verify the tree, see llama-tree.h ...
//   llama_drafter_learn  (d, n, tokens, parents, n_top, top_ids, top_logits, path, n_path, written, n_written);
//
// A pool outlives the texts: it holds the rows and the rates, and may have several drafters. A pool and its drafters must
// not be used by two threads at a time. Tokens are any int32_t: nothing here knows of a vocabulary.
//
// Nothing is thrown. Functions that return int32_t give one of LLAMA_DRAFTER_* when they fail.

#include "llama.h"

#define LLAMA_DRAFTER_TOP_K 4 // best tokens of a row that are learned from

// upper limits of the memory held with glibc: an entry of a full pool (56 to 65 measured), a token of text (36 to 164)
#define LLAMA_DRAFTER_BYTES_AN_ENTRY 72
#define LLAMA_DRAFTER_BYTES_A_TOKEN  200

#ifdef __cplusplus
extern "C" {
#endif

enum llama_drafter_status {
    LLAMA_DRAFTER_OK      =  0,
    LLAMA_DRAFTER_INVALID = -1, // bad arguments; nothing happened
    LLAMA_DRAFTER_FAILED  = -3, // out of memory; the drafter has forgotten its text, the pool is usable
};

struct llama_drafter_corpus;
struct llama_drafter_pool;
struct llama_drafter;

// text that tells how language usually goes on. it never changes: any number of pools and threads may share it
// returns NULL when out of memory, or when the arguments are none
LLAMA_API struct llama_drafter_corpus * llama_drafter_corpus_init(const llama_token * tokens, int32_t n);

// after all its pools and their drafters; NULL is fine
LLAMA_API void llama_drafter_corpus_free(struct llama_drafter_corpus * corpus);

// bytes of memory held
LLAMA_API int64_t llama_drafter_corpus_n_bytes(const struct llama_drafter_corpus * corpus);

// an empty pool
//   corpus        NULL: none
//   max_entries   contexts whose successors are kept; those not renewed for longest are forgotten
//   rates         [n_rates], chance that a token with each kind of evidence is right, before any was judged
//   factors       [n_factors], what the odds of the best candidate of a place are multiplied by, for each class of its rival's
//                 rate, then those of the other candidates, for each class of the best one's
//   prior_weight  trials that such a rate counts for
//   max_trials    trials at which counts are halved, so that they follow the text
// returns NULL when out of memory, or when n_rates and n_factors are not the numbers of kinds of evidence and of factors
LLAMA_API struct llama_drafter_pool * llama_drafter_pool_init(
        const struct llama_drafter_corpus * corpus,
                                  int64_t   max_entries,
                             const double * rates,
                                  int32_t   n_rates,
                             const double * factors,
                                  int32_t   n_factors,
                                   double   prior_weight,
                                   double   max_trials);

// forget everything: successors, and what was learned about rates
LLAMA_API void llama_drafter_pool_clear(struct llama_drafter_pool * pool);

// its drafters may be freed before or after, but not be used any more; NULL is fine
LLAMA_API void llama_drafter_pool_free(struct llama_drafter_pool * pool);

// contexts kept; one that was renewed lately may count twice
LLAMA_API int64_t llama_drafter_pool_size(const struct llama_drafter_pool * pool);

// bytes of memory held, without the corpus
LLAMA_API int64_t llama_drafter_pool_n_bytes(const struct llama_drafter_pool * pool);

// a drafter without text
//   width     children of a node at most, those with the best rates; 0: no limit
//   max_text  tokens of text at most, 1 to 2^29; of more, the latest half is kept
// returns NULL when out of memory, or when an argument is out of range
LLAMA_API struct llama_drafter * llama_drafter_init(struct llama_drafter_pool * pool, int32_t width, int32_t max_text);

// forget the text, not the pool
LLAMA_API void llama_drafter_reset(struct llama_drafter * drafter);

LLAMA_API void llama_drafter_free(struct llama_drafter * drafter);

// tokens of text held
LLAMA_API int32_t llama_drafter_n_text(const struct llama_drafter * drafter);

// bytes of memory held, without the pool
LLAMA_API int64_t llama_drafter_n_bytes(const struct llama_drafter * drafter);

// append tokens that were not written in answer to a draft
LLAMA_API int32_t llama_drafter_extend(struct llama_drafter * drafter, const llama_token * tokens, int32_t n);

// the most likely nodes below the last token of the text, which is the root
//   max_nodes  at most so many, with the root: the room in the arrays
//   least_p    nodes less likely than this are left out
//   parents    [max_nodes], -1 for the root; parents come first
//   p          [max_nodes], estimated chance that the node is accepted, with its whole path
// returns the number of nodes, or LLAMA_DRAFTER_INVALID when there is no text
LLAMA_API int32_t llama_drafter_propose(
        struct llama_drafter * drafter,
                     int32_t   max_nodes,
                      double   least_p,
                     int32_t * parents,
                 llama_token * tokens,
                      double * p);

// take in a verified step, and append what was written to the text
//   tokens, parents        [n_nodes], the tree that was verified: the one proposed last, or another in its place
//   n_top                  [n_nodes], known best tokens of each row, 0 to LLAMA_DRAFTER_TOP_K
//   top_ids, top_logits    those of all rows one after the other, the best of a row first
//   path                   [n_path], accepted nodes below the root
//   written                [n_written], their tokens and the next one; at least one and at most n_path + 1
LLAMA_API int32_t llama_drafter_learn(
        struct llama_drafter * drafter,
                     int32_t   n_nodes,
           const llama_token * tokens,
               const int32_t * parents,
               const int32_t * n_top,
           const llama_token * top_ids,
                 const float * top_logits,
               const int32_t * path,
                     int32_t   n_path,
           const llama_token * written,
                     int32_t   n_written);

#ifdef __cplusplus
}
#endif
