"""How often heads are right about text that they were not trained on, given the true tokens before."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from localspec.train.dataset import Runs
from localspec.train.inputs import Feeder
from localspec.train.module import HeadsModule

#: runs that are measured, at most
MAX_RUNS = 1024
#: runs evaluated together
_RUNS = 16
TOP = 4


@dataclass(frozen=True)
class Accuracy:
    """Shares of each head, 0 to 1: the token was its best one, or among its `TOP` best. Tokens that cannot be drafted
    count as misses. `n` positions were measured."""

    top1: list[float]
    top4: list[float]
    n: int

    def text(self) -> str:
        """The figures in a line, such as "top-1 .47/.39, top-4 .69/.61"."""
        return f"top-1 {_joined(self.top1)}, top-{TOP} {_joined(self.top4)}"


@torch.no_grad()
def measure(module: HeadsModule, feeder: Feeder, runs: Runs, max_runs: int = MAX_RUNS) -> Accuracy:
    """Measure on at most `max_runs` runs."""
    n_heads = feeder.n_heads
    hits = torch.zeros(2, n_heads, dtype=torch.int64)
    counts = torch.zeros(n_heads, dtype=torch.int64)
    output = module.vocabulary().to(feeder.kind)
    for batch in runs.all(_RUNS, max_runs):
        u, targets = feeder.feed(batch)
        for head, x in enumerate(module(u)):
            rows = output[: module.spec.n_rows_of(head)]
            best = (x @ rows.T).topk(min(TOP, len(rows)), dim=-1).indices
            valid, labels = targets.valid[head].flatten(), targets.labels[head].flatten()
            right = (best == labels.unsqueeze(1)) & valid.unsqueeze(1)
            hits[0, head] += right[:, 0].sum().cpu()
            hits[1, head] += right.any(dim=1).sum().cpu()
            counts[head] += valid.sum().cpu()
    shares = (hits / counts.clamp(min=1)).tolist()
    return Accuracy(shares[0], shares[1], int(counts[0]))


def _joined(shares: list[float]) -> str:
    return "/".join(f"{share:.3f}".lstrip("0") for share in shares)
