"""What a step of the drafter costs, apart from the model: a tree proposed, and a verified one learned.

    python benchmarks/drafter_cost.py [--entries 0 100000 1000000] [--nodes 8 16] [--text 2000] [--steps 300] [--cold]

The pools are filled with random contexts first. Prints the median microseconds of a step, which each takes in turn: of
the reference in Python, of the native drafter, and of the native one that learns from rows as llama_tree_stats writes
them. With --cold the caches are emptied before every call, as a model's weights do it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from localspec.methods.ptd.automaton import SuffixAutomaton
from localspec.methods.ptd.core import PtdCore, PtdPool, Top
from localspec.methods.ptd.native import NativeCore, NativeCorpus, NativePool
from localspec.tree import Tree

#: logits of a row's best tokens
LOGITS = [12.0, 11.0, 9.5, 9.0]
N_VOCAB = 30_000
#: tokens are the more often the same few, the larger this is
SKEW = 12
#: bytes read to empty the caches
COLD_BYTES = 1 << 28

Core = PtdCore | NativeCore
Step = tuple[list[Top], list[int], list[int]]


def likely(before: int, last: int) -> list[int]:
    """The best tokens of the row of a made-up model: few contexts are frequent, as in texts."""
    rng = random.Random(before * 31 + last)
    return [int(N_VOCAB * rng.random() ** SKEW) for _ in range(len(LOGITS))]


def made_up_text(n: int, rng: random.Random) -> list[int]:
    """So many tokens as the made-up model writes them."""
    text = [0, 1]
    while len(text) < n:
        text += rng.choices(likely(text[-2], text[-1]), [8, 2, 1, 1])
    return text


def fill(cores: list[Core], pool: NativePool, n_entries: int) -> None:
    """Learn rows of random contexts until `pool` holds so many."""
    rng = random.Random(1)
    while len(pool) < n_entries:
        tokens = rng.choices(range(N_VOCAB), k=128)
        tree = Tree.of(range(-1, len(tokens) - 1), tokens, [1.0] * len(tokens))
        rows: list[Top] = [(rng.choices(range(N_VOCAB), k=len(LOGITS)), LOGITS)] * len(tokens)
        for core in cores:
            core.learn(tree, rows, [], tokens[:1])


def verify(tree: Tree, before: int, rng: random.Random) -> Step:
    """Rows of the made-up model, the path that it accepts, and what it writes."""
    rows: list[Top] = []
    for parent, token in zip(tree.topology.parents, tree.tokens, strict=True):
        rows.append((likely(before if parent < 0 else tree.tokens[parent], token), LOGITS))
    path: list[int] = []
    written: list[int] = []
    node: int | None = 0
    while node is not None:
        written += rng.choices(rows[node][0], [8, 2, 1, 1])
        node = tree.child(node, written[-1])
        if node is not None:
            path.append(node)
    return rows, path, written


def learning(core: Core, tree: Tree, step: Step, from_rows: bool) -> Callable[[], None]:
    """What has the core learn the step, from arrays of rows or from lists."""
    tops, path, written = step
    if not from_rows or not isinstance(core, NativeCore):
        return lambda: core.learn(tree, tops, path, written)
    ids = np.array([ids for ids, _ in tops], dtype=np.int32)
    logits = np.array([logits for _, logits in tops], dtype=np.float32)
    ids_address, logits_address = ids.ctypes.data, logits.ctypes.data

    def learn(keep: object = (ids, logits)) -> None:
        core.learn_rows(tree, ids_address, logits_address, path, written)

    return learn


def steps(cores: list[Core], n: int, n_nodes: int, weights: np.ndarray) -> tuple[list[float], float]:
    """Median seconds of a step of each core, over the latter half of `n`, and the mean number of nodes.

    The last core learns from rows.
    """
    rng = random.Random(2)
    before = 0
    times: list[list[float]] = [[] for _ in cores]
    sizes = []
    for _ in range(n):
        step: Step | None = None
        for core, taken in zip(cores, times, strict=True):
            weights.sum()
            start = perf_counter()
            tree = core.propose(n_nodes)
            seconds = perf_counter() - start
            step = step or verify(tree, before, rng)
            learn = learning(core, tree, step, core is cores[-1])
            weights.sum()
            start = perf_counter()
            learn()
            taken.append(seconds + perf_counter() - start)
        assert step is not None
        before = step[2][-2] if len(step[2]) > 1 else tree.tokens[0]
        sizes.append(len(tree))
    return [median(taken[n // 2 :]) for taken in times], sum(sizes) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[0, 100_000, 1_000_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--text", type=int, default=2000, help="tokens of text before the first step")
    parser.add_argument("--corpus", type=int, default=65_000, help="tokens of the corpus")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--cold", action="store_true", help="empty the caches before every call")
    args = parser.parse_args()

    weights = np.ones((COLD_BYTES if args.cold else 8) // 8)
    rng = random.Random(0)
    corpus = made_up_text(args.corpus, rng)
    text = made_up_text(args.text, rng)
    print(f"{'entries':>9} {'held':>9} {'nodes':>5} {'Python us':>10} {'native us':>10} {'of rows us':>10}")
    for n_entries in args.entries:
        room = 2 * n_entries + 10_000
        reference, known = PtdPool(room, SuffixAutomaton(corpus)), NativeCorpus(corpus)
        pool, other = NativePool(room, known), NativePool(room, known)
        cores: list[Core] = [PtdCore(reference), NativeCore(pool), NativeCore(other)]
        fill(cores, pool, n_entries)
        for n_nodes in args.nodes:
            for core in cores:
                core.reset()
                core.extend(text)
            times, size = steps(cores, args.steps, n_nodes, weights)
            slow, fast, fastest = (1e6 * time for time in times)
            print(f"{n_entries:>9} {len(pool):>9} {size:>5.1f} {slow:>10.1f} {fast:>10.1f} {fastest:>10.1f}")


if __name__ == "__main__":
    main()
