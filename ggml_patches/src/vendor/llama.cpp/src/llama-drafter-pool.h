#pragma once

#include "llama-drafter.h"
#include "llama-drafter-evidence.h"

#include <cstddef>
#include <cstdint>
#include <vector>

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

    // have memory fetch what the next calls with these tokens read: a large pool lies in no cache, and one look-up after the
    // other would wait for it
    void prefetch(llama_token before, llama_token last) const;

    // keep what may follow `last` (after `before`)
    // reached: a token was drawn from this row
    void put(llama_token before, llama_token last, const llama_drafter_top & top, bool reached);

    // NULL when nothing is known; valid until the next put or clear
    const llama_drafter_successors * of_pair (llama_token before, llama_token last) const;
    const llama_drafter_successors * of_token(llama_token last) const;

    size_t size() const;
    size_t n_bytes() const;

private:
    // A hash table with linear probing. A slot is empty unless it has the table's epoch, so that a generation that was full
    // is emptied in no time and its memory is used again.
    class generation {
    public:
        const llama_drafter_successors * find(uint64_t key) const;

        void prefetch(uint64_t key) const;

        // the new entry of a key that is not there
        llama_drafter_successors & add(uint64_t key);

        void empty() noexcept;
        void release() noexcept;

        size_t size = 0;

        size_t n_bytes() const {
            return slots.capacity()*sizeof(slot);
        }

    private:
        struct slot {
            uint64_t key;
            llama_drafter_successors value;
            uint32_t epoch;
        };

        size_t where(uint64_t key) const;
        void   grow();

        std::vector<slot> slots; // none, or a power of two
        uint32_t epoch = 1;
    };

    void put_entry(uint64_t key, const llama_drafter_successors & value);

    const llama_drafter_successors * find(uint64_t key) const;

    size_t     half; // entries of a generation
    generation young;
    generation old;
};

struct llama_drafter_pool {
    llama_drafter_successor_pool successors;
    llama_drafter_rates          rates;
};
