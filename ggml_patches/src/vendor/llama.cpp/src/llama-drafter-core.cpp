#include "llama-drafter-core.h"

#include <algorithm>

llama_drafter::llama_drafter(llama_drafter_pool & pool, int32_t width, int32_t max_text)
    : pool(pool), width(width), max_text(max_text) {}

void llama_drafter::reset() noexcept {
    text.clear();
    copy       = {};
    previous.n = 0;
    is_drafted = false;
}

//
// text
//

void llama_drafter::extend(const llama_token * tokens, int32_t n) {
    previous.n = 0;
    is_drafted = false;
    append(tokens, (size_t) n);
}

void llama_drafter::append(const llama_token * tokens, size_t n) {
    if (text.tokens().size() + n > (size_t) max_text) {
        std::vector<llama_token> all = text.tokens();
        all.insert(all.end(), tokens, tokens + n);
        text.clear();
        for (size_t i = all.size() - ((size_t) max_text + 1)/2; i < all.size(); i++) {
            text.append(all[i]);
        }
        copy = {};
        return;
    }
    for (size_t i = 0; i < n; i++) {
        text.append(tokens[i]);
        const int32_t match = text.match();
        copy = follow(match, text.length(match), copy, tokens[i]);
    }
}

// the copy after `token`, which led to this match: one that was left is followed in step, as if each token since had
// replaced one of the source
llama_drafter::copied llama_drafter::follow(int32_t state, int32_t length, copied copy, llama_token token) const {
    if (length >= MIN_COPY || (copy.at < 0 && length > 0)) {
        return { text.end(state), 0 };
    }
    if (copy.at < 0) {
        return {};
    }
    const auto & tokens = text.tokens();
    const bool agrees = (size_t) copy.at < tokens.size() && tokens[copy.at] == token;
    return { copy.at + 1, agrees ? std::max(1, copy.off) : copy.off + 1 };
}

llama_drafter::place llama_drafter::place_after(const place & from, llama_token token) const {
    place to = { 0, from.length, from.last, token, {} };
    to.state = text.advance(from.state, to.length, token);
    to.copy  = follow(to.state, to.length, from.copy, token);
    return to;
}

//
// growth
//

int32_t llama_drafter::propose(int32_t max_nodes, double least_p) {
    is_drafted = false;
    drafted.clear();
    places.clear();
    judged.clear();
    first_judged.assign(1, 0);
    heap.clear();
    n_found = 0;

    const auto & tokens = text.tokens();
    const size_t n = tokens.size();
    const int32_t match = text.match();
    add_node({ match, text.length(match), n > 1 ? tokens[n - 2] : -1, tokens[n - 1], copy }, -1, 1.0, previous);

    const double least = std::max(least_p, LEAST_SHARE/max_nodes);
    while (true) {
        offer_children((int32_t) drafted.size() - 1, least);
        if (heap.empty() || drafted.size() == (size_t) max_nodes) {
            break;
        }
        std::pop_heap(heap.begin(), heap.end());
        const chance best = heap.back();
        heap.pop_back();
        add_node(place_after(places[best.parent], best.token), best.parent, best.p, {});
    }
    is_drafted = true;
    return (int32_t) drafted.size();
}

// add a node and all tokens that something speaks for behind it; `previous` is the row before
void llama_drafter::add_node(const place & at, int32_t parent, double p, const llama_drafter_top & previous) {
    drafted.push_back({ parent, at.last, p });
    places.push_back(at);

    text_parts by_text;
    this->by_text(at, by_text);
    by_copy(at, by_text);
    row_parts by_rows;
    this->by_rows(at, previous, by_rows);

    for (int32_t i = 0; i < by_text.n; i++) {
        const candidate c = by_text.found[i];
        const int32_t row = by_rows.index(c.token);
        int32_t code = c.code*LLAMA_EVIDENCE_N_ROW + LLAMA_EVIDENCE_NO_ROW;
        if (row < by_rows.n) {
            code += by_rows.found[row].code;
            by_rows.found[row].code = LLAMA_EVIDENCE_NO_ROW; // taken
        }
        judged.push_back({ c.token, code });
    }
    for (int32_t i = 0; i < by_rows.n; i++) {
        if (by_rows.found[i].code != LLAMA_EVIDENCE_NO_ROW) {
            judged.push_back(by_rows.found[i]); // without a text part, the model's part is the code
        }
    }
    first_judged.push_back(judged.size());
}

// put the candidates behind a node on the heap
void llama_drafter::offer_children(int32_t node, double least) {
    candidate best[MAX_CANDIDATES];
    int32_t n = (int32_t) (first_judged[node + 1] - first_judged[node]);
    std::copy_n(judged.begin() + first_judged[node], n, best);

    const auto & rates = pool.rates;
    if (width > 0) {
        // stable, as few as there are
        for (int32_t i = 1; i < n; i++) {
            for (int32_t j = i; j > 0 && rates.p(best[j - 1].code) < rates.p(best[j].code); j--) {
                std::swap(best[j - 1], best[j]);
            }
        }
        n = std::min(n, width);
    }
    for (int32_t i = 0; i < n; i++) {
        const double p = drafted[node].p*rates.p(best[i].code);
        if (p >= least) {
            heap.push_back({ p, ++n_found, node, best[i].token });
            std::push_heap(heap.begin(), heap.end());
        }
    }
}

// what followed one of the longest suffixes
void llama_drafter::by_text(const place & at, text_parts & found) const {
    int32_t state  = at.state;
    int32_t length = at.length;
    int32_t left   = MAX_STATES;
    while (state >= 0 && length > 0) {
        llama_drafter_guess guesses[llama_drafter_text::MAX_GUESSES];
        const int32_t n = text.guesses(state, guesses);
        if (n > 0) {
            const int32_t part = llama_evidence_text_part(length);
            for (int32_t i = 0; i < n; i++) {
                if (found.index(guesses[i].token) == found.n) {
                    found.set(guesses[i].token, part + guesses[i].kind);
                }
            }
            if (--left == 0 || found.n >= MAX_TEXT_CANDIDATES) {
                break;
            }
        }
        state = text.link(state);
        if (state >= 0) {
            length = text.length(state);
        }
    }
}

// how a copy that was left would go on
void llama_drafter::by_copy(const place & at, text_parts & found) const {
    const auto & tokens = text.tokens();
    const copied copy = at.copy;
    if (copy.off <= 0 || copy.off > LLAMA_EVIDENCE_MAX_OFF || copy.at < 0 || (size_t) copy.at >= tokens.size()) {
        return;
    }
    const llama_token token = tokens[copy.at];
    const int32_t i = found.index(token);
    if (i == found.n) {
        found.set(token, LLAMA_EVIDENCE_RESUMED + copy.off - 1);
    } else if (found.found[i].code < LLAMA_EVIDENCE_WEAK_END) {
        found.set(token, LLAMA_EVIDENCE_RESUMED_AND_WEAK);
    }
}

// what rows like the coming one had among their best
void llama_drafter::by_rows(const place & at, const llama_drafter_top & previous, row_parts & found) const {
    for (int32_t i = 0; i < previous.n; i++) {
        if (previous.ids[i] != at.last) {
            const double behind = (double) previous.logits[0] - (double) previous.logits[i];
            found.set(previous.ids[i], llama_evidence_previous_part(behind));
        }
    }
    const auto * successors = pool.successors.of_pair(at.before, at.last);
    int32_t part = LLAMA_EVIDENCE_PAIR;
    if (successors == nullptr) {
        successors = pool.successors.of_token(at.last);
        part = LLAMA_EVIDENCE_TOKEN;
    }
    for (int32_t i = 0; successors != nullptr && i < LLAMA_DRAFTER_TOP_K; i++) {
        if (successors->classes[i] == llama_drafter_successors::NONE) {
            break;
        }
        found.set(successors->ids[i], part + successors->classes[i]);
    }
}

//
// learning
//

void llama_drafter::learn(const step & step) {
    const auto & tokens = text.tokens();
    const llama_token before = tokens.size() > 1 ? tokens[tokens.size() - 2] : -1;
    const auto token_before = [&](int32_t node) {
        return step.parents[node] < 0 ? before : step.tokens[step.parents[node]];
    };
    if (is_drafted) {
        judge(step.written, step.n_written);
        is_drafted = false;
    }
    const int32_t drawn_from = step.n_written > 1 ? step.path[step.n_written - 2] : 0;

    previous.n = 0;
    int32_t first    = 0;
    int32_t n_walked = 0; // nodes of the path that a token was drawn from, without the root
    for (int32_t i = 0; i < step.n_nodes; i++) {
        llama_drafter_top top;
        top.n = step.n_top[i];
        std::copy_n(step.top_ids    + first, top.n, top.ids);
        std::copy_n(step.top_logits + first, top.n, top.logits);
        first += top.n;
        // parents come first, so the nodes of the path come in its order
        const bool reached = i == 0 || (n_walked < step.n_written - 1 && step.path[n_walked] == i);
        n_walked += i > 0 && reached;
        if (top.n > 0) {
            pool.successors.put(token_before(i), step.tokens[i], top, reached);
        }
        if (i == drawn_from) {
            previous = top;
        }
    }
    append(step.written, (size_t) step.n_written);
}

// count every candidate, drafted or not, at each place that the text went through
void llama_drafter::judge(const llama_token * written, int32_t n) {
    size_t node = 0;
    for (int32_t i = 0; i < n; i++) {
        for (size_t c = first_judged[node]; c < first_judged[node + 1]; c++) {
            pool.rates.count(judged[c].code, judged[c].token == written[i]);
        }
        size_t child = node + 1;
        while (child < drafted.size() && (drafted[child].parent != (int32_t) node || drafted[child].token != written[i])) {
            child++;
        }
        if (child == drafted.size()) {
            break;
        }
        node = child;
    }
}

size_t llama_drafter::n_bytes() const {
    return sizeof(*this) + text.n_bytes() + drafted.capacity()*sizeof(node) + places.capacity()*sizeof(place) +
           judged.capacity()*sizeof(candidate) + first_judged.capacity()*sizeof(size_t) + heap.capacity()*sizeof(chance);
}
