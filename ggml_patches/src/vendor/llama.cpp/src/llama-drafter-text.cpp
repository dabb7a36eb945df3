#include "llama-drafter-text.h"

#include "llama-drafter-evidence.h"

#include <algorithm>

static uint64_t key_of_edge(int32_t from, llama_token token) {
    return (uint64_t) (uint32_t) from << 32 | (uint32_t) token;
}

llama_drafter_text::llama_drafter_text() {
    states.push_back({ 0, 0, -1 });
}

void llama_drafter_text::clear() noexcept {
    std::vector<llama_token>().swap(text);
    llama_drafter_map<edge>().swap(edges);
    states.clear();
    blocks.clear();
    states.push_back({ 0, 0, -1 });
    last = 0;
}

void llama_drafter_text::append(llama_token token) {
    const int32_t end   = (int32_t) text.size();
    const int32_t added = (int32_t) states.size();
    text.push_back(token);
    states.push_back({ states[last].length + 1, end + 1, 0 });

    int32_t at = last;
    while (at >= 0 && following(at, token) < 0) {
        lead(at, token, added);
        at = states[at].link;
    }
    if (at >= 0) {
        states[added].link = exactly(at, token);
    }

    at = last;
    for (int32_t i = 0; i < MAX_UPDATES && at > 0; i++) {
        count(at, token, end);
        at = states[at].link;
    }
    last = added;
}

// the state of the longest stretch of `from` and `token`, split from one for longer stretches if need be
int32_t llama_drafter_text::exactly(int32_t from, llama_token token) {
    const int32_t to     = following(from, token);
    const int32_t length = states[from].length + 1;
    if (states[to].length == length) {
        return to;
    }
    const int32_t split = clone(to, length);
    while (from >= 0 && following(from, token) == to) {
        redirect(from, token, split);
        from = states[from].link;
    }
    states[to].link = split;
    return split;
}

int32_t llama_drafter_text::clone(int32_t from, int32_t length) {
    const int32_t copy = (int32_t) states.size();
    states.push_back(states[from]);
    states[copy].length   = length;
    states[copy].n_others = 0;
    if (states[from].count == IN_BLOCK) {
        states[copy].ranked = (int32_t) blocks.size();
        blocks.push_back(blocks[states[from].ranked]);
    }
    llama_token token = states[from].other;
    for (int32_t i = 0; i < states[from].n_others; i++) {
        const edge e = edges[key_of_edge(from, token)];
        lead(copy, token, e.to);
        token = e.next;
    }
    return copy;
}

int32_t llama_drafter_text::advance(int32_t at, int32_t & length, llama_token token) const {
    int32_t to = following(at, token);
    if (to < 0 && following(0, token) < 0) {
        // what follows a stretch follows its suffixes: what does not follow the empty one follows none of them
        length = 0;
        return 0;
    }
    for (; to < 0; to = following(at, token)) {
        at     = states[at].link;
        length = states[at].length;
    }
    length++;
    return to;
}

//
// edges
//

// where `token` leads, or -1
int32_t llama_drafter_text::following(int32_t from, llama_token token) const {
    const state & s = states[from];
    if (s.to >= 0 && s.token == token) {
        return s.to;
    }
    if (s.n_others == 0) {
        return -1;
    }
    const auto e = edges.find(key_of_edge(from, token));
    return e == edges.end() ? -1 : e->second.to;
}

// add an edge, which is not there
void llama_drafter_text::lead(int32_t from, llama_token token, int32_t to) {
    state & s = states[from];
    if (s.to < 0) {
        s.token = token;
        s.to    = to;
        return;
    }
    edges[key_of_edge(from, token)] = { to, s.other };
    s.other = token;
    s.n_others++;
}

void llama_drafter_text::redirect(int32_t from, llama_token token, int32_t to) {
    state & s = states[from];
    if (s.token == token) {
        s.to = to;
    } else {
        edges[key_of_edge(from, token)].to = to;
    }
}

//
// continuations
//

// `token` followed here once more; the stretch occurred up to position `end`
void llama_drafter_text::count(int32_t at, llama_token token, int32_t end) {
    state & s = states[at];
    s.end = end;
    if (s.count == 0 || (s.count > 0 && s.ranked == token)) {
        s.ranked = token;
        s.count++;
        return;
    }
    if (s.count > 0) {
        block first;
        first.tokens[0] = s.ranked;
        first.counts[0] = s.count;
        blocks.push_back(first);
        s.ranked = (int32_t) blocks.size() - 1;
        s.count  = IN_BLOCK;
    }

    block & b = blocks[s.ranked];
    int32_t i = 0;
    while (i < MAX_RANKED && b.counts[i] > 0 && b.tokens[i] != token) {
        i++;
    }
    if (i == MAX_RANKED) {
        // a new one takes the last place if that came once only
        if (b.counts[--i] > 1) {
            return;
        }
        b.counts[i] = 0;
    }
    const int32_t n = b.counts[i] + 1;
    for (; i > 0 && b.counts[i - 1] <= n; i--) {
        b.tokens[i] = b.tokens[i - 1];
        b.counts[i] = b.counts[i - 1];
    }
    b.tokens[i] = token;
    b.counts[i] = n;
}

int32_t llama_drafter_text::guesses(int32_t at, llama_drafter_guess * result) const {
    const state & s = states[at];
    if (s.count == 0) {
        return 0;
    }
    if (s.count > 0) {
        result[0] = { s.ranked, s.count == 1 ? LLAMA_EVIDENCE_ONLY_ONCE : LLAMA_EVIDENCE_ONLY_AGAIN };
        return 1;
    }
    const block & b = blocks[s.ranked];
    int32_t sum = 0;
    for (const int32_t n : b.counts) {
        sum += n;
    }
    int32_t n = 0;
    while (n < MAX_GUESSES && b.counts[n] > 0) {
        result[n] = { b.tokens[n], LLAMA_EVIDENCE_FIRST + n };
        n++;
    }
    if (2*b.counts[0] > sum) {
        result[0].kind = LLAMA_EVIDENCE_MOSTLY;
    }
    return n;
}

size_t llama_drafter_text::n_bytes() const {
    return text.capacity()*sizeof(llama_token) + states.n_bytes() + blocks.n_bytes() + llama_drafter_map_n_bytes(edges);
}
