#include "llama-drafter-pool.h"

#include <algorithm>

// a row's best token falls into a class by how far the second is behind (logits); others by how far they are behind
static const double LEAD[]   = { 5.0, 2.0, 0.7 };
static const double SECOND[] = { 0.7, 2.0, 4.0 };
static const double LATER[]  = { 1.0, 2.5, 4.5 };

static llama_drafter_successors successors_of(const llama_drafter_top & top, bool reached) {
    llama_drafter_successors result;
    for (int32_t i = 0; i < LLAMA_DRAFTER_TOP_K; i++) {
        if (i >= top.n) {
            result.ids[i]     = 0;
            result.classes[i] = llama_drafter_successors::NONE;
            continue;
        }
        int32_t c = (reached ? 0 : LLAMA_EVIDENCE_N_GAPS) + 4*std::min(i, 2);
        if (i > 0) {
            const double behind = (double) top.logits[0] - (double) top.logits[i];
            for (const double limit : i == 1 ? SECOND : LATER) {
                c += behind >= limit;
            }
        } else if (top.n > 1) {
            const double lead = (double) top.logits[0] - (double) top.logits[1];
            for (const double limit : LEAD) {
                c += lead <= limit;
            }
        }
        result.ids[i]     = top.ids[i];
        result.classes[i] = (uint8_t) c;
    }
    return result;
}

static uint64_t key_of_token(llama_token last) {
    return (uint64_t) (int64_t) last;
}

// `before` is -1 at the beginning of a text, which differs from the last token alone too
static uint64_t key_of_pair(llama_token before, llama_token last) {
    return (uint64_t) ((int64_t) before + 2) << 32 | key_of_token(last);
}

llama_drafter_successor_pool::llama_drafter_successor_pool(int64_t max_entries)
    : half((size_t) std::max<int64_t>(1, max_entries/2)) {}

void llama_drafter_successor_pool::clear() noexcept {
    // buckets are freed too
    generation().swap(young);
    generation().swap(old);
}

void llama_drafter_successor_pool::put(llama_token before, llama_token last, const llama_drafter_top & top, bool reached) {
    const llama_drafter_successors value = successors_of(top, reached);
    put_entry(key_of_pair(before, last), value);
    put_entry(key_of_token(last), value);
}

void llama_drafter_successor_pool::put_entry(uint64_t key, const llama_drafter_successors & value) {
    if (young.size() >= half && young.count(key) == 0) {
        young.swap(old);
        young.clear();
    }
    young[key] = value;
}

const llama_drafter_successors * llama_drafter_successor_pool::find(uint64_t key) const {
    for (const generation * kept : { &young, &old }) {
        const auto entry = kept->find(key);
        if (entry != kept->end()) {
            return &entry->second;
        }
    }
    return nullptr;
}

const llama_drafter_successors * llama_drafter_successor_pool::of_pair(llama_token before, llama_token last) const {
    return find(key_of_pair(before, last));
}

const llama_drafter_successors * llama_drafter_successor_pool::of_token(llama_token last) const {
    return find(key_of_token(last));
}

size_t llama_drafter_successor_pool::size() const {
    return young.size() + old.size();
}

size_t llama_drafter_successor_pool::n_bytes() const {
    return llama_drafter_map_n_bytes(young) + llama_drafter_map_n_bytes(old);
}
