"""What a tree costs against a chain of as many nodes, on the patched engine.

    python benchmarks/tree_cost.py [MODEL] [--threads N] [--repeats 20] [--context 64]

Shapes are interleaved within each repeat. Prints, for each size, the median milliseconds of the chain and the median
ratio of each shape to the chain of the same repeat.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.hub import find_model

SIZES = (2, 4, 8, 16, 32, 64)


def shapes(n: int, rng: np.random.Generator) -> dict[str, list[int]]:
    """Parents of n nodes: a chain, a star, a binary tree, and a random tree."""
    return {
        "chain": list(range(-1, n - 1)),
        "star": [-1] + [0] * (n - 1),
        "binary": [(i - 1) // 2 if i else -1 for i in range(n)],
        "random": [-1] + [int(rng.integers(i)) for i in range(1, n)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--context", type=int, default=64, help="tokens in the cache")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    with Model.load(find_model(args.model)) as model:
        ctx = model.new_context(ContextParams(n_ctx=args.context + 256, n_threads=args.threads, mode="patched"))
        ctx.prefill(rng.integers(100, 1000, args.context).tolist())
        print(f"{model.description}, {args.context} tokens in the cache, {args.repeats} repeats")
        print(f"{'n':>3} {'chain ms':>9} {'star':>7} {'binary':>7} {'random':>7}   (ratio to the chain)")
        for n in SIZES:
            times: dict[str, list[float]] = {}
            for _ in range(args.repeats):
                for name, parents in shapes(n, rng).items():
                    tokens = rng.integers(100, 1000, n).tolist()
                    start = perf_counter()
                    ctx.decode(tokens, parents)
                    ctx.accept([0])
                    times.setdefault(name, []).append(perf_counter() - start)
                    ctx.trim(args.context)
            chain = np.array(times["chain"])
            ratios = [float(np.median(np.array(times[name]) / chain)) for name in ("star", "binary", "random")]
            print(f"{n:>3} {1e3 * np.median(chain):>9.2f} " + " ".join(f"{ratio:>7.3f}" for ratio in ratios))


if __name__ == "__main__":
    main()
