#pragma once

#include "llama-drafter.h"
#include "llama-drafter-evidence.h"
#include "llama-drafter-map.h"
#include "llama-drafter-text.h"

#include <cstddef>
#include <cstdint>

// best tokens of a row of logits, the best first; n is 0 when they are not known
struct llama_drafter_top {
    int32_t     n = 0;
    llama_token ids[LLAMA_DRAFTER_TOP_K]    = {};
    float       logits[LLAMA_DRAFTER_TOP_K] = {};
};

// what may follow a context
struct llama_drafter_successors {
    static constexpr uint8_t NONE = 0xff;

    llama_token ids[LLAMA_DRAFTER_TOP_K];
    uint8_t     classes[LLAMA_DRAFTER_TOP_K]; // NONE behind the last one
};

// Successors by context: rows of earlier verifications, kept for the two tokens before them and for the last one.
//
// There are two generations: a full young one becomes the old one, whose entries are then lost unless they were renewed.
class llama_drafter_successor_pool {
public:
    explicit llama_drafter_successor_pool(int64_t max_entries);

    void clear() noexcept;

    // keep what may follow `last` (after `before`)
    // reached: a token was drawn from this row
    void put(llama_token before, llama_token last, const llama_drafter_top & top, bool reached);

    // NULL when nothing is known; valid until the next put or clear
    const llama_drafter_successors * of_pair (llama_token before, llama_token last) const;
    const llama_drafter_successors * of_token(llama_token last) const;

    size_t size() const;
    size_t n_bytes() const;

private:
    using generation = llama_drafter_map<llama_drafter_successors>;

    void put_entry(uint64_t key, const llama_drafter_successors & value);

    const llama_drafter_successors * find(uint64_t key) const;

    size_t     half; // entries of a generation
    generation young;
    generation old;
};

struct llama_drafter_corpus : llama_drafter_text {};

struct llama_drafter_pool {
    const llama_drafter_corpus & corpus;

    llama_drafter_successor_pool successors;
    llama_drafter_rates          rates;
};
