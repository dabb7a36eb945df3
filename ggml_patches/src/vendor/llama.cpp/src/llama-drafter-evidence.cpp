#include "llama-drafter-evidence.h"

#include <algorithm>
#include <iterator>

// smallest match lengths of the classes
static const int32_t LENGTHS[LLAMA_EVIDENCE_N_LENGTHS] = { 1, 2, 3, 4, 6, 9, 16, 32 };
static const int32_t CORPUS_LENGTHS[LLAMA_EVIDENCE_N_CORPUS_LENGTHS] = { 1, 2, 3, 4, 6 };

// limits of the classes of a rival's rate
static const double RIVALS[LLAMA_EVIDENCE_N_RIVALS - 1] = { 0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8 };

static const double BEHIND[LLAMA_EVIDENCE_N_BEHIND] = { 0.0, 0.7, 1.5, 2.5, 4.0, 6.0 };

template <size_t N>
static int32_t length_class(const int32_t (& lengths)[N], int32_t length) {
    size_t c = 0;
    while (c + 1 < N && length >= lengths[c + 1]) {
        c++;
    }
    return (int32_t) c;
}

int32_t llama_evidence_text_part(int32_t length) {
    return LLAMA_EVIDENCE_NO_TEXT + 1 + length_class(LENGTHS, length)*LLAMA_EVIDENCE_N_KINDS;
}

int32_t llama_evidence_corpus_part(int32_t length) {
    return LLAMA_EVIDENCE_CORPUS + length_class(CORPUS_LENGTHS, length)*LLAMA_EVIDENCE_N_KINDS;
}

int32_t llama_evidence_previous_part(double behind) {
    int32_t part = LLAMA_EVIDENCE_PREVIOUS;
    for (const double limit : BEHIND) {
        part += behind > limit;
    }
    return part;
}

llama_drafter_rates::llama_drafter_rates(
        const double * fitted, const double * factors, double prior_weight, double max_trials)
    : fitted(fitted, fitted + LLAMA_EVIDENCE_N_CODES), rates(LLAMA_EVIDENCE_N_CODES), judged(LLAMA_EVIDENCE_N_CODES),
      prior_weight(prior_weight), max_trials(max_trials) {
    std::copy_n(factors, 2*LLAMA_EVIDENCE_N_RIVALS, this->factors[0]);
    reset();
}

void llama_drafter_rates::compare(double * rates, int32_t n) const {
    double best   = 0.0;
    double second = 0.0;
    int32_t first = -1;
    for (int32_t i = 0; i < n; i++) {
        if (rates[i] > best) {
            second = best;
            best   = rates[i];
            first  = i;
        } else if (rates[i] > second) {
            second = rates[i];
        }
    }
    const auto rival_class = [](double rate) {
        return std::upper_bound(std::begin(RIVALS), std::end(RIVALS), rate) - std::begin(RIVALS);
    };
    const double other = factors[1][rival_class(best)];
    for (int32_t i = 0; i < n; i++) {
        const double factor = i == first ? factors[0][rival_class(second)] : other;
        rates[i] = rates[i]/(rates[i] + (1.0 - rates[i])/factor); // no product in a sum: the same with fused instructions
    }
}

void llama_drafter_rates::reset() noexcept {
    for (size_t code = 0; code < rates.size(); code++) {
        rates[code]  = fitted[code];
        judged[code] = { prior_weight*fitted[code], prior_weight };
    }
}
