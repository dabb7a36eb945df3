"""Fits the evidence weights of `localspec.methods.ptd.evidence` to what came true, and prints them.

    python benchmarks/fit_evidence.py calibrate.jsonl --models a.gguf b.gguf --limit 12 --without edit extraction

Answers the prompts with each model and trees of a fixed size. Each candidate at each place that the text went through
is one case: what spoke for it, and whether it came. Its rate is modelled as logistic in the sum of two weights, of the
text's part and of the other part, by Newton's method with a weak ridge; then the factors of the odds for candidates
beside rivals are fitted to these rates. Use prompts that nothing else is measured with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from localspec.bench.prompts import Prompt, own_prompts, read_prompts, select
from localspec.decode import Limits
from localspec.engine.params import ContextParams, SamplingParams
from localspec.events import DoneEvent
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.ptd import evidence
from localspec.methods.ptd.automaton import N_KINDS, SuffixAutomaton
from localspec.methods.ptd.core import PtdCore, PtdPool
from localspec.methods.ptd.corpus import corpus_text
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.ptd.recycling import N_CLASSES
from localspec.methods.strict import StrictVerifier
from localspec.session import Session
from localspec.tree import Tree

RIDGE = 2.0
N_RIVALS = len(evidence.RIVALS) + 1


class CountingCore(PtdCore):
    """Keeps what was proposed at each place that the text went through: codes, and which of them came true."""

    codes: ClassVar[list[int]] = []
    hits: ClassVar[list[bool]] = []
    places: ClassVar[list[int]] = []
    n_places = 0

    def _judge(self, drafted: Tree, written: Sequence[int]) -> None:
        cls = type(self)
        node: int | None = 0
        for token in written:
            for candidate, code in self.judged[node]:
                cls.codes.append(code)
                cls.hits.append(candidate == token)
                cls.places.append(cls.n_places)
            cls.n_places += 1
            node = drafted.child(node, token)
            if node is None:
                break
        super()._judge(drafted, written)


def answer(session: Session, prompts: Sequence[Prompt], n_nodes: int, max_tokens: int) -> None:
    """Answer prompts with a drafter that knows the corpus alone at first, and keep the cases."""
    corpus = SuffixAutomaton(session.model.tokenize(corpus_text()))
    for prompt in prompts:
        drafter = PtdDrafter(PtdPool(corpus=corpus))
        drafter.core = CountingCore(drafter.pool)
        method = Method("ptd", drafter, Fixed(n_nodes), StrictVerifier())
        tokens = session.chat_prompt([{"role": "user", "content": prompt.text}])
        for event in session.generate(tokens, SamplingParams(temperature=0.0), Limits(max_tokens), method):
            if isinstance(event, DoneEvent):
                print(f"# {session.name} {prompt.id}: {event.stats.tokens_per_step:.2f} tokens per step", flush=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def log_loss(p: np.ndarray, hits: np.ndarray) -> float:
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return float(-(hits * np.log(p) + (1 - hits) * np.log(1 - p)).mean())


def fit_weights(codes: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """Weights of the text's parts, of the other parts, and the bias."""
    n = np.bincount(codes, minlength=evidence.N_CODES).astype(float)
    h = np.bincount(codes, hits, evidence.N_CODES)
    known = np.nonzero(n)[0]
    n, h = n[known], h[known]
    x = np.zeros((len(known), evidence.N_TEXT + evidence.N_ROW + 1))
    at = np.arange(len(known))
    x[at, known // evidence.N_ROW] = x[at, evidence.N_TEXT + known % evidence.N_ROW] = x[:, -1] = 1
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 1e-3
    w = np.zeros(x.shape[1])
    for _ in range(100):
        p = sigmoid(x @ w)
        curvature = (x * (n * p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curvature, x.T @ (n * p - h) + ridge * w)
        w -= step
        if np.abs(step).max() < 1e-6:
            break
    return w


def classes(rates: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The class of each case by its rival's rate: those of best candidates first, then those of others."""
    order = np.lexsort((-rates, places))  # the best of each place first
    sorted_places = places[order]
    is_best = np.r_[True, sorted_places[1:] != sorted_places[:-1]]
    first = np.nonzero(is_best)[0]
    rival = np.repeat(rates[order][first], np.diff(np.r_[first, len(order)]))
    alone = np.r_[is_best[1:], True]
    rival[is_best] = np.where(alone, 0.0, np.r_[rates[order][1:], 0.0])[is_best]
    found = np.empty(len(order), dtype=int)
    found[order] = np.searchsorted(evidence.RIVALS, rival, side="right") + np.where(is_best, 0, N_RIVALS)
    return found


def fit_factors(rates: np.ndarray, hits: np.ndarray, cls: np.ndarray) -> np.ndarray:
    """What the odds of the cases of each class are to be multiplied by."""
    logit = np.log(rates / (1 - rates))
    w = np.zeros(2 * N_RIVALS)
    for _ in range(50):
        p = sigmoid(logit + w[cls])
        gradient = np.bincount(cls, p - hits, len(w)) + RIDGE * w
        w -= gradient / (np.bincount(cls, p * (1 - p), len(w)) + RIDGE)
    return np.exp(w)


def show(name: str, lines: list[np.ndarray]) -> None:
    """Print weights as a tuple in Python."""
    print(f"{name} = (")
    for line in lines:
        print("    " + ", ".join(f"{value:.2f}" for value in line) + ",")
    print(")")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", type=Path, help="JSON lines; the own prompts come in addition")
    parser.add_argument("--models", nargs="*", type=Path, default=[])
    parser.add_argument("--cases", type=Path, help="go on from the cases in this .npz file, and write them there")
    parser.add_argument("--limit", type=int, default=12, help="prompts of a task")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--without", nargs="*", default=[], metavar="TASK", help="tasks to leave out")
    args = parser.parse_args()
    prompts = select(own_prompts(), limit=args.limit)
    for path in args.prompts:
        prompts += select(read_prompts(path), limit=args.limit)
    core = CountingCore
    if args.cases and args.cases.exists():
        kept = np.load(args.cases)
        core.codes, core.hits, core.places = (kept[name].tolist() for name in ("codes", "hits", "places"))
        core.n_places = max(core.places, default=-1) + 1
    for path in args.models:
        with Session.open(path, method="plain", context=ContextParams(n_threads=args.threads)) as session:
            answer(session, [p for p in prompts if p.task not in args.without], args.nodes, args.max_tokens)
        if args.cases:
            np.savez_compressed(args.cases, codes=core.codes, hits=core.hits, places=core.places)
    codes, hits, places = np.array(core.codes), np.array(core.hits, dtype=float), np.array(core.places)
    weights = fit_weights(codes, hits)
    text, other = weights[: evidence.N_TEXT], weights[evidence.N_TEXT : -1]
    rates = sigmoid(text[codes // evidence.N_ROW] + other[codes % evidence.N_ROW] + weights[-1])
    cls = classes(rates, places)
    factors = fit_factors(rates, hits, cls)
    odds = rates / (1 - rates) * factors[cls]
    losses = [f"{log_loss(p, hits):.4f}" for p in (rates, odds / (1 + odds))]
    print(f"# {len(codes)} cases, log loss {losses[0]}, beside rivals {losses[1]}")
    lengths = text[1 : evidence.RESUMED].reshape(-1, N_KINDS)
    show("_TEXT_WEIGHTS", [text[:1], *lengths, text[evidence.RESUMED :]])
    by_class = other[evidence.PAIR : evidence.PREVIOUS].reshape(-1, N_CLASSES // 2)
    corpus = other[evidence.CORPUS :].reshape(-1, N_KINDS)
    show("_ROW_WEIGHTS", [other[:1], *by_class, other[evidence.PREVIOUS : evidence.CORPUS], *corpus])
    print(f"_BIAS = {weights[-1]:.2f}")
    show("_BEST", [factors[:N_RIVALS]])
    show("_OTHER", [factors[N_RIVALS:]])


if __name__ == "__main__":
    main()
