"""Fits the evidence weights of `localspec.methods.ptd.evidence` to recorded answers, and prints them.

    localspec record calibrate.log --prompts calibrate.jsonl
    python benchmarks/fit_evidence.py calibrate.log more.log --without edit extraction

Each candidate at each place of each answer is one case: what spoke for it, and whether it came. The chance is modelled
as logistic in the sum of two weights, of the text's part and of the model's part, by Newton's method with a weak ridge.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from localspec.methods.base import Walk
from localspec.methods.ptd import evidence
from localspec.methods.ptd.automaton import N_KINDS
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.ptd.recycling import N_CLASSES
from localspec.replay.log import AnswerLog, LoggedAnswer
from localspec.replay.replay import LoggedRows

RIDGE = 2.0


def count(answer: LoggedAnswer, cases: np.ndarray, hits: np.ndarray) -> None:
    """Add the candidates of every place of an answer to the counts by code."""
    drafter = PtdDrafter()
    drafter.start(answer.prompt)
    for row, token in enumerate(answer.tokens):
        tree = drafter.propose(2)
        for candidate, code in drafter.core.judged[0]:
            cases[code] += 1
            hits[code] += candidate == token
        root = tree.prune([0])
        drafter.observe(root, LoggedRows(answer, row, 1, (0,)), Walk((), (token,)))


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
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--without", nargs="*", default=[], metavar="TASK", help="tasks to leave out")
    args = parser.parse_args()
    cases, hits = np.zeros(evidence.N_CODES), np.zeros(evidence.N_CODES)
    for path in args.logs:
        for answer in AnswerLog.read(path).answers:
            if answer.task not in args.without:
                count(answer, cases, hits)
    weights = fit(cases, hits)
    text, row = weights[: evidence.N_TEXT], weights[evidence.N_TEXT : -1]
    lengths = text[1 : evidence.RESUMED].reshape(-1, N_KINDS)
    show("_TEXT_WEIGHTS", [text[:1], *lengths, text[evidence.RESUMED :]])
    by_class = row[evidence.PAIR : evidence.PREVIOUS].reshape(-1, N_CLASSES)
    show("_ROW_WEIGHTS", [row[:1], *by_class, row[evidence.PREVIOUS :]])
    print(f"_BIAS = {weights[-1]:.2f}")


if __name__ == "__main__":
    main()
