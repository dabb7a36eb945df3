#pragma once

#include "llama.h"
#include "llama-drafter-map.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// an array that grows without moving what it holds: no token waits for a copy, and no room for twice as many lies idle
template <typename T>
class llama_drafter_chunks {
public:
    T       & operator[](size_t i)       { return chunks[i/N][i%N]; }
    const T & operator[](size_t i) const { return chunks[i/N][i%N]; }

    void push_back(const T & value) {
        if (n == chunks.size()*N) {
            chunks.push_back(std::unique_ptr<T[]>(new T[N]));
        }
        (*this)[n++] = value;
    }

    size_t size() const { return n; }

    // all but the first chunk is freed, so that there is room for a first element
    void clear() noexcept {
        if (chunks.size() > 1) {
            chunks.resize(1);
        }
        n = 0;
    }

    size_t n_bytes() const {
        return chunks.size()*N*sizeof(T) + chunks.capacity()*sizeof(chunks[0]);
    }

private:
    static constexpr size_t N = 256;

    std::vector<std::unique_ptr<T[]>> chunks;
    size_t n = 0;
};

// a continuation, and what it is among those of its state: one of the kinds of llama_evidence
struct llama_drafter_guess {
    llama_token token;
    int32_t     kind;
};

// The text and a suffix automaton over it: what followed, wherever the end of the text occurred before.
//
// A state stands for all places where one stretch of text occurred; its link leads to the longest suffix of that stretch
// that occurred at other places too. State 0 is the empty stretch. (Blumer et al. 1985)
class llama_drafter_text {
public:
    static constexpr int32_t MAX_GUESSES = 3;

    llama_drafter_text();

    void clear() noexcept;

    // amortised constant time. when it throws, only clear may follow
    void append(llama_token token);

    const std::vector<llama_token> & tokens() const { return text; }

    // the longest suffix of the text that occurred before; 0: none
    int32_t match() const { return last == 0 ? 0 : states[last].link; }

    // the longest suffix that occurred when `token` follows a match of `length` tokens at `state`, whose length is updated
    int32_t advance(int32_t state, int32_t & length, llama_token token) const;

    int32_t length(int32_t state) const { return states[state].length; }
    int32_t link  (int32_t state) const { return states[state].link; }   // -1 for state 0
    int32_t end   (int32_t state) const { return states[state].end; }    // position after its latest known occurrence

    // the best continuations, the most likely first; returns their number
    int32_t guesses(int32_t state, llama_drafter_guess * result) const;

    size_t n_bytes() const;

private:
    static constexpr int32_t MAX_RANKED  = 8;  // continuations that a state ranks
    static constexpr int32_t MAX_UPDATES = 12; // suffixes that one token updates: repeated text has as many as tokens

    // Most states have one continuation, which is in the state itself. Further ones are in the map of edges, ranked in a
    // block.
    struct state {
        int32_t     length;
        int32_t     end;
        int32_t     link;
        llama_token token    = 0;  // the first edge
        int32_t     to       = -1;
        llama_token other    = 0;  // the latest edge in the map
        int32_t     n_others = 0;
        int32_t     ranked   = 0;  // the continuation that was counted, or the number of the block
        int32_t     count    = 0;  // how often it was; IN_BLOCK
    };

    static constexpr int32_t IN_BLOCK = -1;

    // continuations, the most frequent first and the latest first among equals; counts of 0 behind the last one
    struct block {
        llama_token tokens[MAX_RANKED] = {};
        int32_t     counts[MAX_RANKED] = {};
    };

    struct edge {
        int32_t     to;
        llama_token next; // the edge that its state got before this one: to copy a state takes its edges only
    };

    int32_t following(int32_t from, llama_token token) const;
    void    lead(int32_t from, llama_token token, int32_t to);
    void    redirect(int32_t from, llama_token token, int32_t to);
    int32_t exactly(int32_t from, llama_token token);
    int32_t clone(int32_t from, int32_t length);
    void    count(int32_t at, llama_token token, int32_t end);

    std::vector<llama_token>    text;
    llama_drafter_chunks<state> states;
    llama_drafter_chunks<block> blocks;

    llama_drafter_map<edge>     edges; // by state and token

    int32_t last = 0;
};
