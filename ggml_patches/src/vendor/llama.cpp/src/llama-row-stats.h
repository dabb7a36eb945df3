#pragma once

#include "llama.h"

#include <cstdint>

// reductions of one row of logits

// the k largest logits, largest first; among equal ones the smaller id comes first
// rows with fewer than k finite entries are filled up with the ids of -inf entries in order; NaN counts as -inf
void llama_row_top_k(const float * row, int32_t n, int32_t k, llama_token * ids, float * logits);

// ln(sum(exp(row))) and the entropy of softmax(row) in nats; max is the largest logit
void llama_row_lse(const float * row, int32_t n, float max, float * lse, float * entropy);
