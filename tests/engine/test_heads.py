"""Native heads against those of NumPy: all kinds and types of heads, trees of any shape, on any device's operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.engine import kernels
from localspec.engine.heads import MAX_PLANS, PORTABLE, STOCK_TOP_K, NativeHeads, make_heads
from localspec.engine.model import Model
from localspec.errors import EngineError, UsageError
from localspec.heads import file
from localspec.heads.embeddings import InputEmbeddings
from localspec.heads.file import WEIGHT_TYPES, read_heads, write_heads
from localspec.heads.reference import HeadDraft, ReferenceHeads
from localspec.heads.tensors import Heads
from localspec.static_tree import MC_SIM_7B_63, StaticTree
from tests.engine.trees import NEEDS_PATCHES, MakePatched
from tests.heads.random_heads import SPECS, heads_of, spec_of
from tests.tiny_models import N_EMBD, N_VOCAB, write_tiny

pytestmark = NEEDS_PATCHES

Models = dict[str, Model]
#: the CPU's own operations, and those that devices have: TOPK_STATS, or what stands in for it
GRAPHS = pytest.mark.parametrize("flags", [0, PORTABLE, PORTABLE | STOCK_TOP_K], ids=["host", "topk-stats", "stock"])
NATIVE_SPECS = [name for name, values in SPECS.items() if values["arch"] != "hydra-prefix-mlp"]
TREES = {
    "chain": StaticTree.greedy(4),
    "wide": StaticTree.from_paths([[rank] for rank in range(30)]),
    "gaps": StaticTree.from_paths([[1], [3], [1, 0], [1, 2], [3, 1], [3, 1, 5], [1, 2, 0], [1, 2, 0, 4]]),
    "published": MC_SIM_7B_63,
    "very wide": StaticTree.from_paths([[70], [70, 1], [2], [2, 66], [70, 1, 0]]),  # beyond what TOPK_STATS tells
    "root": StaticTree(),
}
#: how far logits may be from those of NumPy, which does not round activations, as a share of the row's standard
#: deviation; measured at most 8e-7 for float types and 0.035 for the others
TOLERANCE = {"f32": 1e-5, "f16": 1e-2, "q8_0": 0.1, "q4_0": 0.1, "q4_q8": 0.1}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(weight_type="f32", seed=4, **spec)`: a file of heads for the tiny models."""

    def write_file(weight_type: str = "f32", seed: int = 4, **values: Any) -> Path:
        path = tmp_path / f"heads-{len(list(tmp_path.iterdir()))}.gguf"
        sizes = {"n_embd": N_EMBD, "n_vocab": N_VOCAB, "arch": "hydra-mlp"}
        heads = heads_of(spec_of(**(sizes | values)), seed)
        # logits of random heads are so far apart that nearly all probabilities vanish
        tensors = {name: t * np.float32(0.04 if "output" in name else 1) for name, t in heads.tensors.items()}
        write_heads(path, Heads(heads.spec, tensors, heads.d2t), weight_type)
        return path

    return write_file


@pytest.fixture
def model(tiny_q4: Models) -> Model:
    return tiny_q4["llama"]


@pytest.fixture
def load(model: Model, make_patched: MakePatched) -> Iterator[Callable[..., NativeHeads]]:
    """`load(path, flags=0, **params)`: native heads with a context of their own, closed after the test."""
    made: list[NativeHeads] = []

    def load_file(path: Path, flags: int = 0, **params: Any) -> NativeHeads:
        made.append(NativeHeads(model, make_patched(model, **params), path, flags))
        return made[-1]

    yield load_file
    for heads in made:
        heads.close()


def state(seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(N_EMBD).astype(np.float32)


def reference_of(path: Path, model: Model) -> ReferenceHeads:
    return ReferenceHeads(read_heads(path), InputEmbeddings(model.path))


def trees_for(heads: NativeHeads) -> list[StaticTree]:
    """Those whose ranks the heads have tokens for."""
    rows_of = heads.spec.n_rows_of
    return [t for t in TREES.values() if all(max(x.widths) <= rows_of(i) for i, x in enumerate(t.levels))]


def assert_drafted(
    draft: HeadDraft, reference: ReferenceHeads, g: np.ndarray, root: int, tree: StaticTree, tolerance: float
) -> None:
    """Each token has its rank in the row of NumPy for the path that was drafted, and about its probability there.

    Tokens alone could not be compared: rounding may swap two with nearly the same logits, and then all below differs.
    """
    parents, depths = tree.topology.parents, tree.topology.depths
    assert draft.tokens[0] == root
    assert draft.q[0] == 1
    paths = [[root]]
    place = {token: row for row, token in enumerate(reference.ids.tolist())}
    for node in range(1, tree.n_nodes):
        above = paths[parents[node]]
        token = int(draft.tokens[node])
        paths.append([*above, token])
        row = reference.logits(depths[node] - 1, g, [above])[0].astype(np.float64)
        logit, slack = row[place[token]], tolerance * row.std()
        assert abs(logit - np.sort(row)[-1 - tree.ranks[node]]) <= slack
        log_p = logit - row.max() - np.log(np.exp(row - row.max()).sum())
        assert abs(np.log(draft.q[node]) - log_p) <= slack
    for children in tree.topology.children:
        assert len({int(draft.tokens[child]) for child in children}) == len(children)
    assert len(draft.top1) == sum(level.greedy is not None for level in tree.levels)
    for level, p in zip(tree.levels, draft.top1, strict=False):
        assert level.greedy is not None
        path = paths[level.parents[level.greedy]]
        row = reference.logits(len(path) - 1, g, [path])[0].astype(np.float64)
        assert abs(np.log(p) + np.log(np.exp(row - row.max()).sum())) <= tolerance * row.std()


@GRAPHS
@pytest.mark.parametrize("kind", NATIVE_SPECS)
def test_float_heads_draft_what_numpy_drafts(model: Model, write: Write, load, kind: str, flags: int) -> None:
    path = write("f32", **SPECS[kind])
    heads, reference = load(path, flags), reference_of(path, model)
    for tree in trees_for(heads):
        for seed in range(2):
            draft, expected = heads.draft(state(seed), 7 + seed, tree), reference.draft(state(seed), 7 + seed, tree)
            np.testing.assert_array_equal(draft.tokens, expected.tokens)
            np.testing.assert_allclose(draft.q, expected.q, rtol=1e-5)
            np.testing.assert_allclose(draft.top1, expected.top1, rtol=1e-5)


@GRAPHS
@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
@pytest.mark.parametrize("kind", ["hydra-mlp", "medusa", "trimmed"])
def test_heads_of_all_types(model: Model, write: Write, load, kind: str, weight_type: str, flags: int) -> None:
    path = write(weight_type, **SPECS[kind])
    heads, reference = load(path, flags, n_threads=2), reference_of(path, model)
    for tree in trees_for(heads):
        assert_drafted(heads.draft(state(), 9, tree), reference, state(), 9, tree, TOLERANCE[weight_type])


@GRAPHS
@pytest.mark.parametrize("kind", ["hydra-mlp", "medusa", "trimmed"])
def test_levels_below_unlikely_nodes_are_left_out(model: Model, write: Write, load, kind: str, flags: int) -> None:
    path = write("f32", **SPECS[kind])
    heads, reference = load(path, flags, n_threads=2), reference_of(path, model)
    seen = set()
    for tree in trees_for(heads):
        for seed, least_p in product(range(2), (0.0, 1e-6, 0.02, 0.1, 0.3, 2.0)):
            whole = heads.draft(state(seed), 7, tree)
            draft, expected = (each.draft(state(seed), 7, tree, least_p) for each in (heads, reference))
            assert draft.n_levels == expected.n_levels
            np.testing.assert_array_equal(draft.tokens, expected.tokens)
            np.testing.assert_allclose(draft.q, expected.q, rtol=1e-5)
            np.testing.assert_allclose(draft.top1, expected.top1, rtol=1e-5)
            n = tree.ends[draft.n_levels]
            np.testing.assert_array_equal(draft.tokens[:n], whole.tokens[:n])
            np.testing.assert_array_equal(draft.q[:n], whole.q[:n])
            assert draft.top1[: draft.n_levels] == whole.top1[: draft.n_levels]
            assert (draft.tokens[n:] == -1).all() and not draft.q[n:].any() and not any(draft.top1[draft.n_levels :])
            assert whole.n_levels == tree.depth and (least_p or n == tree.n_nodes)
            seen.add(draft.n_levels)
    assert seen == {0, 1, 2, 3, 4}


def test_the_kernels_of_llama_cpp_serve_as_well(write: Write, make_patched: MakePatched, tmp_path: Path) -> None:
    path = write("q8_0", **SPECS["trimmed"])
    with kernels.disabled(), Model.load(write_tiny(tmp_path / "model.gguf")) as model:
        heads = NativeHeads(model, make_patched(model), path)
        reference = reference_of(path, model)
        tree = TREES["gaps"]
        assert_drafted(heads.draft(state(), 9, tree), reference, state(), 9, tree, TOLERANCE["q8_0"])


def test_heads_whose_matrices_have_several_types(model: Model, write: Write, load, monkeypatch) -> None:
    types = [WEIGHT_TYPES[name][0] for name in ("q8_0", "f16", "q4_0", "f32")]
    one_type = file._type_of

    def by_width(values: np.ndarray, matrix_type: Any) -> Any:
        return one_type(values, types[values.shape[-1] // N_EMBD % 4])

    monkeypatch.setattr(file, "_type_of", by_width)
    path = write()
    reference = reference_of(path, model)
    for flags in (0, PORTABLE, PORTABLE | STOCK_TOP_K):
        draft = load(path, flags).draft(state(), 9, MC_SIM_7B_63)
        assert_drafted(draft, reference, state(), 9, MC_SIM_7B_63, TOLERANCE["q8_0"])


def test_the_state_of_a_model_is_drafted_from(model: Model, write: Write, make_patched: MakePatched) -> None:
    path = write("f32")
    context = make_patched(model, hidden=True)
    heads, reference = make_heads(model, context, path), reference_of(path, model)
    assert isinstance(heads, NativeHeads)
    context.prefill([20, 21, 22])
    for _ in range(3):
        rows = context.decode([30, 31], [-1, 0])
        g, root = rows.hidden(1), rows.argmax(1)
        draft = heads.draft(g, root, MC_SIM_7B_63)
        np.testing.assert_array_equal(draft.tokens, reference.draft(g, root, MC_SIM_7B_63).tokens)
        assert rows.argmax(1) == root  # a draft leaves the rows of the decode alone
        context.accept([0, 1])


def test_many_trees_take_turns(write: Write, load) -> None:
    heads = load(write("q8_0"))
    trees = [StaticTree.from_paths([[0], [a], [0, b]]) for a in range(1, 12) for b in range(8)]
    assert len(trees) > MAX_PLANS
    first = [heads.draft(state(), 9, tree) for tree in trees]
    for tree, draft in zip(trees, first, strict=True):
        equal = StaticTree.from_paths(tree.to_paths())
        for again in (heads.draft(state(), 9, tree), heads.draft(state(), 9, equal)):
            np.testing.assert_array_equal(again.tokens, draft.tokens)
            np.testing.assert_array_equal(again.q, draft.q)


def test_draws_are_those_of_numpy(model: Model, write: Write, load) -> None:
    path = write("f32")
    tree = StaticTree.from_paths([[0], [1], [0, 0]])
    native, reference = (
        heads.draft_sampled(state(), 7, tree, 0.8, np.random.default_rng(1))
        for heads in (load(path), reference_of(path, model))
    )
    assert native.tokens.tolist() == reference.tokens.tolist()


@GRAPHS
@pytest.mark.parametrize("kind", ["hydra-mlp", "medusa", "trimmed"])
def test_a_graph_stays_on_its_device_which_is_copied_to_once(write: Write, load, kind: str, flags: int) -> None:
    heads = load(write("q4_0", **SPECS[kind]), flags)
    n_inputs = 2 if heads.spec.grounded else 1
    for tree in trees_for(heads):
        drafts = tree.n_nodes > 1
        assert heads.n_splits(tree) == int(drafts)
        sent, fetched = heads.copied_bytes(tree)
        assert sent == (4 * n_inputs * N_EMBD if drafts and flags else 0)
        assert (fetched > 0) == (drafts and flags > 0)


def test_what_does_not_fit_is_refused(write: Write, load) -> None:
    heads = load(write("f32", n_draft_vocab=20))
    tree = TREES["chain"]
    with pytest.raises(UsageError, match="too deep"):
        heads.draft(state(), 7, StaticTree.greedy(5))
    with pytest.raises(UsageError, match="rank 20 is asked"):
        heads.draft(state(), 7, StaticTree.from_paths([[20]]))
    for root in (-1, N_VOCAB):
        with pytest.raises(UsageError, match="outside the vocabulary"):
            heads.draft(state(), root, tree)
    with pytest.raises(UsageError, match="do not fit heads of width"):
        heads.draft(state()[1:], 7, tree)
    assert len(heads.draft(state(), 7, tree).tokens) == 5


def test_other_contexts_and_kinds_get_the_heads_of_numpy(
    model: Model, write: Write, make_patched, make_context
) -> None:
    assert isinstance(make_heads(model, make_context(model, "stock"), write("q4_0")), ReferenceHeads)
    prefix = write("f32", **SPECS["hydra-prefix-mlp"])
    assert isinstance(make_heads(model, make_patched(model), prefix), ReferenceHeads)


def test_closed_heads_say_so(write: Write, make_patched: MakePatched, tmp_path: Path) -> None:
    with Model.load(write_tiny(tmp_path / "model.gguf")) as model:
        context = make_patched(model)
        of_context, of_model = (NativeHeads(model, context, write()) for _ in range(2))
        of_context.close()
        of_context.close()
        with pytest.raises(EngineError, match="heads are closed"):
            of_context.draft(state(), 7, TREES["chain"])
        of_model.draft(state(), 7, TREES["chain"])
        context.close()
        with pytest.raises(EngineError, match="context is closed"):
            of_model.draft(state(), 7, TREES["chain"])
    with pytest.raises(EngineError, match="heads are closed"):
        _ = of_model.n_bytes
