#include "llama-drafter-core.h"

#include <algorithm>

llama_drafter::llama_drafter(llama_drafter_pool & pool, int32_t width, int32_t max_text)
    : pool(pool), width(width), max_text(max_text) {}

void llama_drafter::reset() noexcept {
    text.clear();
    in_corpus  = {};
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
    for (size_t i = 0; i < n; i++) {
        in_corpus.state = pool.corpus.advance(in_corpus.state, in_corpus.length, tokens[i]);
    }
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
        copy = follow({ match, text.length(match) }, copy, tokens[i]);
    }
}

// the copy after `token`, which led to this match: one that was left is followed in step, as if each token since had
// replaced one of the source
llama_drafter::copied llama_drafter::follow(match at, copied copy, llama_token token) const {
    if (at.length >= MIN_COPY || (copy.at < 0 && at.length > 0)) {
        return { text.end(at.state), 0 };
    }
    if (copy.at < 0) {
        return {};
    }
    const auto & tokens = text.tokens();
    const bool agrees = (size_t) copy.at < tokens.size() && tokens[copy.at] == token;
    return { copy.at + 1, agrees ? std::max(1, copy.off) : copy.off + 1 };
}

llama_drafter::place llama_drafter::place_after(const place & from, llama_token token) const {
    place to = { from.in_text, from.in_corpus, from.last, token, {} };
    to.in_text.state   = text.advance(to.in_text.state, to.in_text.length, token);
    to.in_corpus.state = pool.corpus.advance(to.in_corpus.state, to.in_corpus.length, token);
    to.copy            = follow(to.in_text, from.copy, token);
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
    const llama_token before = n > 1 ? tokens[n - 2] : -1;
    add_node({ { match, text.length(match) }, in_corpus, before, tokens[n - 1], copy }, -1, 1.0, previous);

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
    by_match(text, at.in_text, llama_evidence_text_part, by_text);
    by_copy(at, by_text);

    // what is more specific counts: two tokens more than one, and the model's row more than the corpus
    other_parts others;
    by_previous(at, previous, others);
    by_corpus(at, others);
    by_rows(at, others);

    for (int32_t i = 0; i < by_text.n; i++) {
        const candidate c = by_text.found[i];
        const int32_t other = others.index(c.token);
        int32_t code = c.code*LLAMA_EVIDENCE_N_ROW + LLAMA_EVIDENCE_NO_ROW;
        if (other < others.n) {
            code += others.found[other].code;
            others.found[other].code = LLAMA_EVIDENCE_NO_ROW; // taken
        }
        judged.push_back({ c.token, code });
    }
    for (int32_t i = 0; i < others.n; i++) {
        if (others.found[i].code != LLAMA_EVIDENCE_NO_ROW) {
            judged.push_back(others.found[i]); // without a text part, the other part is the code
        }
    }
    first_judged.push_back(judged.size());
}

// put the candidates behind a node on the heap
void llama_drafter::offer_children(int32_t node, double least) {
    const candidate * candidates = judged.data() + first_judged[node];
    int32_t n = (int32_t) (first_judged[node + 1] - first_judged[node]);

    struct offer { double chance; llama_token token; } offers[MAX_CANDIDATES];
    double chances[MAX_CANDIDATES];
    for (int32_t i = 0; i < n; i++) {
        chances[i] = pool.rates.p(candidates[i].code);
    }
    pool.rates.compare(chances, n);
    for (int32_t i = 0; i < n; i++) {
        offers[i] = { chances[i], candidates[i].token };
    }
    if (width > 0) {
        // stable, as few as there are
        for (int32_t i = 1; i < n; i++) {
            for (int32_t j = i; j > 0 && offers[j - 1].chance < offers[j].chance; j--) {
                std::swap(offers[j - 1], offers[j]);
            }
        }
        n = std::min(n, width);
    }
    for (int32_t i = 0; i < n; i++) {
        const double p = drafted[node].p*offers[i].chance;
        if (p >= least) {
            heap.push_back({ p, ++n_found, node, offers[i].token });
            std::push_heap(heap.begin(), heap.end());
        }
    }
}

// what followed one of the longest suffixes in a text
template <int32_t N>
void llama_drafter::by_match(const llama_drafter_text & text, match at, part_of_length part_of, parts<N> & found) {
    int32_t left = MAX_STATES;
    while (at.state >= 0 && at.length > 0) {
        llama_drafter_guess guesses[llama_drafter_text::MAX_GUESSES];
        const int32_t n = text.guesses(at.state, guesses);
        if (n > 0) {
            const int32_t part = part_of(at.length);
            for (int32_t i = 0; i < n; i++) {
                if (found.index(guesses[i].token) == found.n) {
                    found.set(guesses[i].token, part + guesses[i].kind);
                }
            }
            if (--left == 0 || found.n >= MAX_TEXT_CANDIDATES) {
                break;
            }
        }
        at.state = text.link(at.state);
        if (at.state >= 0) {
            at.length = text.length(at.state);
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

// other candidates of the row before
void llama_drafter::by_previous(const place & at, const llama_drafter_top & previous, other_parts & found) const {
    for (int32_t i = 0; i < previous.n; i++) {
        if (previous.ids[i] != at.last) {
            const double behind = (double) previous.logits[0] - (double) previous.logits[i];
            found.set(previous.ids[i], llama_evidence_previous_part(behind));
        }
    }
}

// how the corpus goes on
void llama_drafter::by_corpus(const place & at, other_parts & found) const {
    parts<MAX_GUESSES> guesses;
    by_match(pool.corpus, at.in_corpus, llama_evidence_corpus_part, guesses);
    for (int32_t i = 0; i < guesses.n; i++) {
        found.set(guesses.found[i].token, guesses.found[i].code);
    }
}

// what rows like the coming one had among their best
void llama_drafter::by_rows(const place & at, other_parts & found) const {
    const auto * successors = pool.successors.of_pair(at.before, at.last);
    const bool is_pair = successors != nullptr;
    if (!is_pair) {
        successors = pool.successors.of_token(at.last);
    }
    for (int32_t i = 0; successors != nullptr && i < LLAMA_DRAFTER_TOP_K; i++) {
        if (successors->classes[i] == llama_drafter_successors::NONE) {
            break;
        }
        const llama_token token = successors->ids[i];
        const int32_t known = found.index(token);
        if (is_pair) {
            found.set(token, LLAMA_EVIDENCE_PAIR + successors->classes[i]);
        } else if (known == found.n || found.found[known].code < LLAMA_EVIDENCE_CORPUS_PAIR) {
            found.set(token, LLAMA_EVIDENCE_TOKEN + successors->classes[i]);
        }
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
