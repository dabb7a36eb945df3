"""What drafting a tree with heads costs, next to a step of the model over one token.

    python benchmarks/heads_cost.py MODEL HEADS [--nodes 4 8 16 28 64] [--threads N] [--repeats 60] [--numpy]

MODEL is a GGUF file or the name of a pulled model. Each draft follows a step of the model, whose weights have filled
the caches by then, and all trees take turns. Prints medians, and a draft's share of a step.
"""

from __future__ import annotations

import argparse
import heapq
from statistics import median
from time import perf_counter

from localspec import hub
from localspec.engine.heads import NativeHeads, make_heads
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.heads.embeddings import InputEmbeddings
from localspec.heads.file import read_heads
from localspec.heads.reference import ReferenceHeads
from localspec.static_tree import StaticTree

#: chance that the candidate of each rank is right, whatever the head: of about the heads of SmolLM2
CHANCES = (0.42, 0.11, 0.055, 0.035, 0.025, 0.02, 0.015, 0.01)
PROMPT = "The history of the city begins with a small settlement at the mouth of the river, where"


def likely_tree(n_nodes: int, depth: int) -> StaticTree:
    """The `n_nodes` (root included) most likely nodes when ranks are right by `CHANCES`."""
    found: list[tuple[int, ...]] = []
    rest: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]
    while len(found) < n_nodes:
        p, path = heapq.heappop(rest)
        found.append(path)
        if len(path) < depth:
            for rank, chance in enumerate(CHANCES):
                heapq.heappush(rest, (p * chance, (*path, rank)))
    return StaticTree.from_paths(path for path in found if path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("heads")
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8, 16, 28, 64])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--numpy", action="store_true", help="the heads of stock mode")
    args = parser.parse_args()

    with Model.load(hub.find_model(args.model)) as model:
        context = model.new_context(ContextParams(n_ctx=1024, n_threads=args.threads, hidden=True))
        heads: NativeHeads | ReferenceHeads
        if args.numpy:
            heads = ReferenceHeads(read_heads(args.heads), InputEmbeddings(model.path))
        else:
            heads = make_heads(model, context, args.heads)
        trees = {n: likely_tree(n, heads.spec.n_heads) for n in args.nodes}
        drafts: dict[int, list[float]] = {n: [] for n in trees}
        steps: list[float] = []
        prompt = model.tokenize(PROMPT)
        context.prefill(prompt[:-1])
        token = prompt[-1]
        for repeat in range(args.repeats + 5):
            for n, tree in trees.items():
                start = perf_counter()
                rows = context.decode([token], [-1])
                step = perf_counter() - start
                token, state = rows.argmax(0), rows.hidden(0)
                context.drop()  # every step sees the same context
                start = perf_counter()
                heads.draft(state, token, tree)
                draft = perf_counter() - start
                if repeat >= 5:
                    steps.append(step)
                    drafts[n].append(draft)
        step = median(steps)
        where = heads.device if isinstance(heads, NativeHeads) else "NumPy"
        print(f"{model.path.name}, heads on {where}: a step takes {1e3 * step:.2f} ms")
        print(f"{'nodes':>5} {'rows a head':>14} {'draft ms':>9} {'of a step':>9}")
        for n, tree in trees.items():
            rows_a_head = " ".join(map(str, tree.parents_per_depth))
            print(f"{n:>5} {rows_a_head:>14} {1e3 * median(drafts[n]):>9.3f} {median(drafts[n]) / step:>8.1%}")


if __name__ == "__main__":
    main()
