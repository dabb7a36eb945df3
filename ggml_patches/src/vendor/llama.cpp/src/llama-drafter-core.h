#pragma once

#include "llama-drafter-pool.h"
#include "llama-drafter-text.h"

#include <cstdint>
#include <vector>

// One text and its pool: how a tree grows from what they know, and how they learn from a verified one.
//
// Kept equal, to the order of each sum and product, to localspec's core.py, which is its specification: tests compare
// the two to the last bit.
struct llama_drafter {
    llama_drafter(llama_drafter_pool & pool, int32_t width, int32_t max_text);

    void reset() noexcept;

    void extend(const llama_token * tokens, int32_t n);

    // returns the number of nodes; there is a text, and max_nodes >= 1
    int32_t propose(int32_t max_nodes, double least_p);

    // a node of the draft
    struct node {
        int32_t     parent;
        llama_token token;
        double      p;
    };

    const std::vector<node> & nodes() const { return drafted; }

    const std::vector<llama_token> & tokens() const { return text.tokens(); }

    struct step {
        int32_t             n_nodes;
        const llama_token * tokens;
        const int32_t     * parents;
        const int32_t     * n_top;
        const llama_token * top_ids;
        const float       * top_logits;
        const int32_t     * path;
        const llama_token * written;
        int32_t             n_written;
    };

    // the step is known to be valid
    void learn(const step & step);

    size_t n_bytes() const;

private:
    static constexpr int32_t MIN_COPY            = 2; // a copy is followed from a match of at least so many tokens
    static constexpr int32_t MAX_STATES          = 3; // asked for continuations at a node, the longest match first
    static constexpr int32_t MAX_TEXT_CANDIDATES = 6; // that end the asking
    static constexpr double  LEAST_SHARE         = 0.05; // of one node of an evenly used budget: less likely ones are left out

    static constexpr int32_t MAX_GUESSES    = MAX_STATES*llama_drafter_text::MAX_GUESSES;
    static constexpr int32_t MAX_BY_TEXT    = MAX_GUESSES + 1;
    static constexpr int32_t MAX_OTHERS     = MAX_GUESSES + 2*LLAMA_DRAFTER_TOP_K;
    static constexpr int32_t MAX_CANDIDATES = MAX_BY_TEXT + MAX_OTHERS;

    // the longest suffix that occurred in a text
    struct match {
        int32_t state  = 0;
        int32_t length = 0;
    };

    // the place in the source of a copy, -1: none; tokens since the text matched it
    struct copied {
        int32_t at  = -1;
        int32_t off = 0;
    };

    struct place {
        match       in_text;
        match       in_corpus;
        llama_token before;
        llama_token last;
        copied      copy;
    };

    struct candidate {
        llama_token token;
        int32_t     code; // of its evidence
    };

    // tokens and a part of their evidence, each token once, in order of arrival
    template <int32_t N> struct parts {
        candidate found[N];
        int32_t   n = 0;

        int32_t index(llama_token token) const {
            int32_t i = 0;
            while (i < n && found[i].token != token) {
                i++;
            }
            return i;
        }

        void set(llama_token token, int32_t part) {
            const int32_t i = index(token);
            n += i == n;
            found[i] = { token, part };
        }
    };

    using text_parts  = parts<MAX_BY_TEXT>;
    using other_parts = parts<MAX_OTHERS>;

    // a node that the tree may get; among equals what was found first
    struct chance {
        double      p;
        int32_t     serial;
        int32_t     parent;
        llama_token token;

        bool operator<(const chance & other) const {
            return p < other.p || (p == other.p && serial > other.serial);
        }
    };

    void   append(const llama_token * tokens, size_t n);
    copied follow(match at, copied copy, llama_token token) const;
    place  place_after(const place & from, llama_token token) const;

    void add_node(const place & at, int32_t parent, double p, const llama_drafter_top & previous);
    void offer_children(int32_t node, double least);
    void by_copy(const place & at, text_parts & found) const;
    void by_previous(const place & at, const llama_drafter_top & previous, other_parts & found) const;
    void by_corpus(const place & at, other_parts & found) const;
    void by_rows(const place & at, other_parts & found) const;

    using part_of_length = int32_t (*)(int32_t length);

    template <int32_t N>
    static void by_match(const llama_drafter_text & text, match at, part_of_length part_of, parts<N> & found);
    void judge(const llama_token * written, int32_t n);

    llama_drafter_pool & pool;
    const int32_t width;
    const int32_t max_text;

    llama_drafter_text text;
    match              in_corpus;
    copied             copy;
    llama_drafter_top  previous; // the row that the last token was drawn from

    // the last draft; node i has candidates first_judged[i] to first_judged[i + 1]
    bool                   is_drafted = false;
    std::vector<node>      drafted;
    std::vector<place>     places;
    std::vector<candidate> judged;
    std::vector<size_t>    first_judged;
    std::vector<chance>    heap;
    int32_t                n_found = 0;
};
