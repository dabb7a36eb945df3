"""Fits what `localspec.methods.union` makes of the estimates of ptd and of heads, and prints it.

    python benchmarks/fit_union.py smollm2-135m-instruct [--heads heads.gguf] [--prompts calibrate.jsonl]

Answers the prompts greedily and without speculation, while both draft at every token. A candidate below a place that
the text went through is one case: what each drafter gave it there, and whether it came. Its chance is modelled as
logistic in the logits of both, by Newton's method, apart for the four ways in which two drafters can meet. By default
the prompts are those that banks are calibrated on: neither heads are trained on them, nor anything measured with them.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from localspec.bench.prompts import Prompt
from localspec.decode import Limits
from localspec.engine.base import Rows
from localspec.engine.params import ContextParams, SamplingParams
from localspec.entmtp.prompts import AUTO, calibration_prompts
from localspec.events import DoneEvent
from localspec.methods.base import Drafter, Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.head_methods import make_head_drafter
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.strict import StrictVerifier
from localspec.methods.union import BOTH, HEADS_ALONE, HEADS_BESIDE, PTD_ALONE, chance, logit
from localspec.session import Session
from localspec.tree import Tree

NAMES = ("BOTH", "PTD_ALONE", "HEADS_BESIDE", "HEADS_ALONE")
NOW = dict(zip(NAMES, (BOTH, PTD_ALONE, HEADS_BESIDE, HEADS_ALONE), strict=True))
DEPTH = 4
#: of each drafter's trees: what small models are asked for
NODES = 18
RIDGE = 1e-3

Cases = dict[str, list[tuple[float, ...]]]


class Spectator:
    """Lets both draft at every token, and verifies nothing."""

    def __init__(self, ptd: Drafter, heads: Drafter) -> None:
        self._drafters = (ptd, heads)
        self._drafts: list[tuple[int, Tree, Tree]] = []
        self._text: list[int] = []

    def start(self, prompt: Sequence[int]) -> None:
        self._drafts, self._text = [], []
        for drafter in self._drafters:
            drafter.start(prompt)

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        known, guessed = (drafter.propose(NODES) for drafter in self._drafters)
        if len(guessed) > 1:
            self._drafts.append((len(self._text), known, guessed))
        return Tree.root(known.tokens[0])

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        for drafter in self._drafters:
            drafter.observe(tree, rows, walk)
        self._text += walk.tokens

    def judge(self, cases: Cases) -> None:
        """Add the cases of the text that is written now."""
        for at, known, guessed in self._drafts:
            places: list[int | None] = [0, 0]
            for token in self._text[at : at + DEPTH]:
                told = [
                    {}
                    if node is None
                    else {tree.tokens[c]: chance(tree, c, node) for c in tree.topology.children[node]}
                    for tree, node in zip((known, guessed), places, strict=True)
                ]
                _add(cases, *told, token)
                places = [
                    None if node is None else tree.child(node, token)
                    for tree, node in zip((known, guessed), places, strict=True)
                ]
                if places == [None, None]:
                    break


def _add(cases: Cases, known: dict[int, float], guessed: dict[int, float], came: int) -> None:
    for token in known | guessed:
        hit = float(token == came)
        if token in known and token in guessed:
            cases["BOTH"].append((logit(known[token]), logit(guessed[token]), hit))
        elif token in guessed:
            cases["HEADS_BESIDE" if known else "HEADS_ALONE"].append((logit(guessed[token]), hit))
        elif guessed:
            cases["PTD_ALONE"].append((logit(known[token]), hit))


def fit(rows: Sequence[tuple[float, ...]]) -> tuple[np.ndarray, float]:
    """Weights and bias of a logistic model, and its log loss; the last column is what came true."""
    values = np.array(rows)
    x, y = np.column_stack([values[:, :-1], np.ones(len(values))]), values[:, -1]
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (p - y) + RIDGE * weights
        weights -= np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(len(weights)), slope)
    return weights, loss(x, y, weights)


def loss(x: np.ndarray, y: np.ndarray, weights: Sequence[float] | np.ndarray) -> float:
    """Mean log loss."""
    p = np.clip(1 / (1 + np.exp(-x @ np.asarray(weights))), 1e-6, 1 - 1e-6)
    return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def watch(session: Session, prompts: Sequence[Prompt], max_tokens: int) -> Cases:
    """The cases of the answers to `prompts`."""
    cases: Cases = defaultdict(list)
    ptd = PtdDrafter(session.materials.pool, corpus=session.corpus)
    spectator = Spectator(ptd, make_head_drafter("heads", session.materials.heads))
    method = Method("spectator", spectator, Fixed(2), StrictVerifier())
    limits = Limits(max_tokens, session.template.stops)
    for prompt in prompts:
        session.clear_pool()
        tokens = session.chat_prompt([{"role": "user", "content": prompt.text}])
        for event in session.generate(tokens, SamplingParams(temperature=0), limits, method):
            if isinstance(event, DoneEvent):
                spectator.judge(cases)
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--heads", type=Path, nargs="*", default=())
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    params = ContextParams(n_threads=args.threads)
    with Session.open(args.model, method="plain", context=params, heads=args.heads) as session:
        cases = watch(session, calibration_prompts(AUTO, args.prompts), args.max_tokens)
    for name in NAMES:
        rows = np.array(cases[name])
        weights, least = fit(cases[name])
        x = np.column_stack([rows[:, :-1], np.ones(len(rows))])
        print(f"{name} = ({', '.join(f'{weight:.2f}' for weight in weights)})", end="")
        print(f"  # {len(rows)} cases, {rows[:, -1].mean():.3f} true, ", end="")
        print(f"log loss {least:.4f}, {loss(x, rows[:, -1], NOW[name]):.4f} with the present ones")


if __name__ == "__main__":
    main()
