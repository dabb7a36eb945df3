#include "llama-drafter-evidence.h"

// smallest match lengths of the classes
static const int32_t LENGTHS[LLAMA_EVIDENCE_N_LENGTHS] = { 1, 2, 3, 4, 6, 9, 16 };

static const double BEHIND[LLAMA_EVIDENCE_N_BEHIND] = { 0.0, 0.7, 1.5, 2.5, 4.0, 6.0 };

int32_t llama_evidence_text_part(int32_t length) {
    int32_t c = 0;
    while (c + 1 < LLAMA_EVIDENCE_N_LENGTHS && length >= LENGTHS[c + 1]) {
        c++;
    }
    return 1 + c*LLAMA_EVIDENCE_N_KINDS;
}

int32_t llama_evidence_previous_part(double behind) {
    int32_t part = LLAMA_EVIDENCE_PREVIOUS;
    for (const double limit : BEHIND) {
        part += behind > limit;
    }
    return part;
}

llama_drafter_rates::llama_drafter_rates(const double * fitted, double prior_weight, double max_trials)
    : fitted(fitted, fitted + LLAMA_EVIDENCE_N_CODES), rates(LLAMA_EVIDENCE_N_CODES), judged(LLAMA_EVIDENCE_N_CODES),
      prior_weight(prior_weight), max_trials(max_trials) {
    reset();
}

void llama_drafter_rates::reset() noexcept {
    for (size_t code = 0; code < rates.size(); code++) {
        rates[code]  = fitted[code];
        judged[code] = { prior_weight*fitted[code], prior_weight };
    }
}
