#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// What speaks for a drafted token is one small number, its code: the text's part (how long a match it continues, and how)
// times LLAMA_EVIDENCE_N_ROW, plus another part (how the model ranked the token when it was last at such a place, or how
// the corpus goes on).
// The codes are those of localspec's evidence.py, which gives the rates to begin with.

enum llama_evidence : int32_t {
    // what a guess is among the continuations of its match: the only one, which came several times or once; one that came
    // more often than all others; the first, second or third of several
    LLAMA_EVIDENCE_ONLY_AGAIN = 0,
    LLAMA_EVIDENCE_ONLY_ONCE,
    LLAMA_EVIDENCE_MOSTLY,
    LLAMA_EVIDENCE_FIRST,
    LLAMA_EVIDENCE_SECOND,
    LLAMA_EVIDENCE_LATER,
    LLAMA_EVIDENCE_N_KINDS,

    LLAMA_EVIDENCE_N_LENGTHS        = 8, // classes of match lengths
    LLAMA_EVIDENCE_N_CORPUS_LENGTHS = 5, // of those in the corpus
    LLAMA_EVIDENCE_MAX_OFF          = 4, // a copy that was left is followed so many tokens

    // the text's part: nothing, length class x kind, resumed copies by distance, one that a weak match speaks for as well
    LLAMA_EVIDENCE_NO_TEXT          = 0,
    LLAMA_EVIDENCE_WEAK_END         = 1 + LLAMA_EVIDENCE_N_KINDS, // below are matches of a single token
    LLAMA_EVIDENCE_RESUMED          = 1 + LLAMA_EVIDENCE_N_LENGTHS * LLAMA_EVIDENCE_N_KINDS,
    LLAMA_EVIDENCE_RESUMED_AND_WEAK = LLAMA_EVIDENCE_RESUMED + LLAMA_EVIDENCE_MAX_OFF,
    LLAMA_EVIDENCE_N_TEXT,

    LLAMA_EVIDENCE_N_GAPS    = 12, // classes of a token within its row, by how far the tokens are apart
    LLAMA_EVIDENCE_N_CLASSES = 2 * LLAMA_EVIDENCE_N_GAPS, // the same again for rows that the text did not come to
    LLAMA_EVIDENCE_N_BEHIND  = 6,  // limits of how far one was behind in the row before

    // the other part: nothing, a row for the same two tokens, one for the same last token, the row before this one, length
    // class x kind in the corpus
    LLAMA_EVIDENCE_NO_ROW      = 0,
    LLAMA_EVIDENCE_PAIR        = 1,
    LLAMA_EVIDENCE_TOKEN       = LLAMA_EVIDENCE_PAIR + LLAMA_EVIDENCE_N_CLASSES,
    LLAMA_EVIDENCE_PREVIOUS    = LLAMA_EVIDENCE_TOKEN + LLAMA_EVIDENCE_N_CLASSES,
    LLAMA_EVIDENCE_CORPUS      = LLAMA_EVIDENCE_PREVIOUS + LLAMA_EVIDENCE_N_BEHIND + 1,
    LLAMA_EVIDENCE_CORPUS_PAIR = LLAMA_EVIDENCE_CORPUS + LLAMA_EVIDENCE_N_KINDS, // matches of two tokens and more
    LLAMA_EVIDENCE_N_ROW       = LLAMA_EVIDENCE_CORPUS + LLAMA_EVIDENCE_N_CORPUS_LENGTHS * LLAMA_EVIDENCE_N_KINDS,

    LLAMA_EVIDENCE_N_CODES = LLAMA_EVIDENCE_N_TEXT * LLAMA_EVIDENCE_N_ROW,

    LLAMA_EVIDENCE_N_RIVALS = 8, // classes of a rival's rate
};

// the text's part for a match of length >= 1, to which the kind of the continuation is added
int32_t llama_evidence_text_part(int32_t length);

// the same for a match in the corpus
int32_t llama_evidence_corpus_part(int32_t length);

// the other part for a token of the row before, so many logits behind its best
int32_t llama_evidence_previous_part(double behind);

// Running rates of being right, by code, and what they mean for several candidates of one place.
class llama_drafter_rates {
public:
    // factors: of a candidate's odds, by its rival's class, first those of the best candidate, then those of others
    llama_drafter_rates(const double * fitted, const double * factors, double prior_weight, double max_trials);

    void reset() noexcept;

    // a token with this evidence was judged
    void count(int32_t code, bool hit) {
        counts & c = judged[code];
        c.hits   += hit ? 1.0 : 0.0;
        c.trials += 1.0;
        rates[code] = c.hits/c.trials;
        if (c.trials >= max_trials) {
            c.hits   /= 2.0;
            c.trials /= 2.0;
        }
    }

    double p(int32_t code) const {
        return rates[code];
    }

    // from the rates of all candidates of one place to their chances. one without a serious rival is right more often than
    // its rate says, and one beside a better one less often
    void compare(double * rates, int32_t n) const;

    size_t n_bytes() const {
        return (fitted.capacity() + rates.capacity())*sizeof(double) + judged.capacity()*sizeof(counts);
    }

private:
    struct counts {
        double hits, trials;
    };

    std::vector<double> fitted;
    std::vector<double> rates; // apart from the counts: growing a tree reads these only, and from memory
    std::vector<counts> judged;

    double factors[2][LLAMA_EVIDENCE_N_RIVALS];

    double prior_weight;
    double max_trials;
};
