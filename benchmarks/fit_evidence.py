"""Fits the evidence weights of `localspec.methods.ptd.evidence` to what came true, and prints them.

    python benchmarks/fit_evidence.py calibrate.jsonl --models a.gguf b.gguf --limit 12 --without edit extraction

Answers the prompts with each model and trees of a fixed size. Each candidate at each place that the text went through
is one case: what spoke for it, and whether it came. The chance is modelled as logistic in the sum of two weights, of
the text's part and of the model's part, by Newton's method with a weak ridge. Use prompts that nothing else is measured
with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from localspec.bench.prompts import Prompt, own_prompts, read_prompts, select
from localspec.decode import Limits
from localspec.engine.params import ContextParams, SamplingParams
from localspec.events import DoneEvent
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.ptd import evidence
from localspec.methods.ptd.automaton import N_KINDS
from localspec.methods.ptd.core import PtdCore, PtdPool
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.ptd.recycling import N_CLASSES
from localspec.methods.strict import StrictVerifier
from localspec.session import Session
from localspec.tree import Tree

RIDGE = 2.0


class CountingCore(PtdCore):
    """Counts cases and hits by code."""

    cases = np.zeros(evidence.N_CODES)
    hits = np.zeros(evidence.N_CODES)

    def _judge(self, drafted: Tree, written: Sequence[int]) -> None:
        node: int | None = 0
        for token in written:
            for candidate, code in self.judged[node]:
                self.cases[code] += 1
                self.hits[code] += candidate == token
            node = drafted.child(node, token)
            if node is None:
                break
        super()._judge(drafted, written)


def answer(session: Session, prompts: Sequence[Prompt], n_nodes: int, max_tokens: int) -> None:
    """Answer prompts with a drafter that knows nothing at first, counting."""
    for prompt in prompts:
        drafter = PtdDrafter(PtdPool())
        drafter.core = CountingCore(drafter.pool)
        method = Method("ptd", drafter, Fixed(n_nodes), StrictVerifier())
        tokens = session.chat_prompt([{"role": "user", "content": prompt.text}])
        for event in session.generate(tokens, SamplingParams(temperature=0.0), Limits(max_tokens), method):
            if isinstance(event, DoneEvent):
                print(f"# {session.name} {prompt.id}: {event.stats.tokens_per_step:.2f} tokens per step", flush=True)


def fit(cases: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """Weights of the text's parts, of the model's parts, and the bias."""
    codes = np.nonzero(cases)[0]
    n, h = cases[codes], hits[codes]
    x = np.zeros((len(codes), evidence.N_TEXT + evidence.N_ROW + 1))
    at = np.arange(len(codes))
    x[at, codes // evidence.N_ROW] = x[at, evidence.N_TEXT + codes % evidence.N_ROW] = x[:, -1] = 1
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 1e-3
    w = np.zeros(x.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ w))
        curvature = (x * (n * p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curvature, x.T @ (n * p - h) + ridge * w)
        w -= step
        if np.abs(step).max() < 1e-6:
            break
    p = 1 / (1 + np.exp(-x @ w))
    loss = -(h * np.log(p) + (n - h) * np.log(1 - p)).sum() / n.sum()
    print(f"# {int(n.sum())} cases, log loss {loss:.4f}")
    return w


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
    parser.add_argument("--counts", type=Path, help="go on from the counts in this file, and write them there")
    parser.add_argument("--limit", type=int, default=12, help="prompts of a task")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--without", nargs="*", default=[], metavar="TASK", help="tasks to leave out")
    args = parser.parse_args()
    prompts = select(own_prompts(), limit=args.limit)
    for path in args.prompts:
        prompts += select(read_prompts(path), limit=args.limit)
    if args.counts and args.counts.exists():
        cases, hits = np.loadtxt(args.counts)
        CountingCore.cases += cases
        CountingCore.hits += hits
    for path in args.models:
        with Session.open(path, method="plain", context=ContextParams(n_threads=args.threads)) as session:
            answer(session, [p for p in prompts if p.task not in args.without], args.nodes, args.max_tokens)
        if args.counts:
            np.savetxt(args.counts, [CountingCore.cases, CountingCore.hits], fmt="%d")
    cases, hits = CountingCore.cases, CountingCore.hits
    weights = fit(cases, hits)
    text, row = weights[: evidence.N_TEXT], weights[evidence.N_TEXT : -1]
    lengths = text[1 : evidence.RESUMED].reshape(-1, N_KINDS)
    show("_TEXT_WEIGHTS", [text[:1], *lengths, text[evidence.RESUMED :]])
    by_class = row[evidence.PAIR : evidence.PREVIOUS].reshape(-1, N_CLASSES // 2)
    show("_ROW_WEIGHTS", [row[:1], *by_class, row[evidence.PREVIOUS :]])
    print(f"_BIAS = {weights[-1]:.2f}")


if __name__ == "__main__":
    main()
