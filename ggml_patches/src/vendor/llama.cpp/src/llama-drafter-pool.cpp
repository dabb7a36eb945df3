#include "llama-drafter-pool.h"

#include <algorithm>
#include <utility>

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

static uint64_t hash_of(uint64_t key) {
    key *= 0x9e3779b97f4a7c15;
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93;
    return key ^ key >> 32;
}

//
// one generation
//

// the slot that holds the key, or the empty one where it belongs; there are slots
size_t llama_drafter_successor_pool::generation::where(uint64_t key) const {
    const size_t mask = slots.size() - 1;
    size_t i = hash_of(key) & mask;
    while (slots[i].epoch == epoch && slots[i].key != key) {
        i = (i + 1) & mask;
    }
    return i;
}

const llama_drafter_successors * llama_drafter_successor_pool::generation::find(uint64_t key) const {
    if (size == 0) {
        return nullptr;
    }
    const slot & s = slots[where(key)];
    return s.epoch == epoch ? &s.value : nullptr;
}

void llama_drafter_successor_pool::generation::prefetch(uint64_t key) const {
#if defined(__GNUC__) // and Clang
    if (size > 0) {
        __builtin_prefetch(&slots[hash_of(key) & (slots.size() - 1)]);
    }
#else
    (void) key;
#endif
}

llama_drafter_successors & llama_drafter_successor_pool::generation::add(uint64_t key) {
    if (4*(size + 1) > 3*slots.size()) {
        grow();
    }
    slot & s = slots[where(key)];
    s.key   = key;
    s.epoch = epoch;
    size++;
    return s.value;
}

void llama_drafter_successor_pool::generation::grow() {
    // epoch 0 is that of no table
    std::vector<slot> before(std::max<size_t>(16, 2*slots.size()), slot{});
    before.swap(slots);
    for (const slot & s : before) {
        if (s.epoch == epoch) {
            slots[where(s.key)] = s;
        }
    }
}

void llama_drafter_successor_pool::generation::empty() noexcept {
    size = 0;
    if (++epoch == 0) {
        // slots of long ago would seem to be of this epoch
        std::fill(slots.begin(), slots.end(), slot{});
        epoch = 1;
    }
}

void llama_drafter_successor_pool::generation::release() noexcept {
    std::vector<slot>().swap(slots);
    size = 0;
}

//
// both
//

llama_drafter_successor_pool::llama_drafter_successor_pool(int64_t max_entries)
    : half((size_t) std::max<int64_t>(1, max_entries/2)) {}

void llama_drafter_successor_pool::clear() noexcept {
    young.release();
    old.release();
}

void llama_drafter_successor_pool::prefetch(llama_token before, llama_token last) const {
    for (const uint64_t key : { key_of_pair(before, last), key_of_token(last) }) {
        young.prefetch(key);
        old.prefetch(key);
    }
}

void llama_drafter_successor_pool::put(llama_token before, llama_token last, const llama_drafter_top & top, bool reached) {
    const llama_drafter_successors value = successors_of(top, reached);
    put_entry(key_of_pair(before, last), value);
    put_entry(key_of_token(last), value);
}

void llama_drafter_successor_pool::put_entry(uint64_t key, const llama_drafter_successors & value) {
    auto * entry = const_cast<llama_drafter_successors *>(young.find(key));
    if (entry == nullptr) {
        if (young.size >= half) {
            std::swap(young, old);
            young.empty();
        }
        entry = &young.add(key);
    }
    *entry = value;
}

const llama_drafter_successors * llama_drafter_successor_pool::find(uint64_t key) const {
    const auto * found = young.find(key);
    return found != nullptr ? found : old.find(key);
}

const llama_drafter_successors * llama_drafter_successor_pool::of_pair(llama_token before, llama_token last) const {
    return find(key_of_pair(before, last));
}

const llama_drafter_successors * llama_drafter_successor_pool::of_token(llama_token last) const {
    return find(key_of_token(last));
}

size_t llama_drafter_successor_pool::size() const {
    return young.size + old.size;
}

size_t llama_drafter_successor_pool::n_bytes() const {
    return young.n_bytes() + old.n_bytes();
}
