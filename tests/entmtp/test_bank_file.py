"""Bank files: read as they were written, refused with the reason where they belong to something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.store import CurveKey
from localspec.entmtp.bank_file import (
    BankKey,
    Names,
    StoredBank,
    bank_path,
    check_bank,
    find_bank,
    read_bank,
    save_bank,
    stored_banks,
)
from localspec.entmtp.fitting import Costs, best_policy, expected_of_policy, fit_policies, score_depth
from localspec.entmtp.growth import grow_all
from localspec.entmtp.measured import FittedPolicy, MeasuredTree
from localspec.entmtp.pareto import bank_by_cost
from localspec.entmtp.plan import SIZES, Plan
from localspec.entmtp.policies import Star, Value
from localspec.errors import LocalspecError, UsageError
from localspec.methods.bank import TreeBank
from localspec.static_tree import StaticTree
from tests.entmtp.logs import real_like_log

SETUP = CurveKey("0123456789abcdef", "lib1", "A fast CPU", 2, "patched", "k f16")
KEY = BankKey("code", "fedcba9876543210", SETUP)
NAMES = Names("smol", "heads.gguf", "llama-cpp-python 1, patched")
CURVE = CostCurve((1, 8, 64), (0.01, 0.02, 0.1))
LOG = real_like_log(3, n_answers=6)


def made(key: BankKey = KEY, names: Names = NAMES) -> StoredBank:
    bank = bank_by_cost(grow_all(LOG, 12), lambda tree: CURVE.cost(tree.n_nodes)).spread(3)
    drafts = tuple(0.001 * tree.depth for tree in bank.trees)
    policies = fit_policies(LOG, bank.trees, Costs.of(bank, drafts, 0.005))
    measured = tuple(
        MeasuredTree(e.tree, e.mean_accepted, 1.0, 1.0, 0.001, e.seconds, e.seconds, 50.0) for e in bank.entries
    )
    created = "2030-01-02T03:04:05+00:00"
    return StoredBank(
        key, names, created, CURVE, bank, drafts, 0.005, policies, best_policy(policies), measured, {"front": [[1, 0]]}
    )


STORED = made()


def test_what_is_expected_of_a_policy_is_the_mean_of_its_trees() -> None:
    for name, fitted in STORED.policies.items():
        mean = sum(share * accepted for share, accepted in zip(fitted.shares, fitted.accepted, strict=True))
        assert mean == pytest.approx(expected_of_policy(STORED, name))
    # trees are picked where they suit: the largest one does better there than everywhere
    assert STORED.policies["value"].accepted[-1] > STORED.bank.entries[-1].mean_accepted
    star = STORED.policies["star"]
    assert star.accepted[star.policy.index] == pytest.approx(STORED.bank.entries[star.policy.index].mean_accepted)


def test_a_bank_without_what_its_trees_have_accepted_is_read_all_the_same() -> None:
    data = STORED.to_dict()
    for fitted in data["policies"].values():
        del fitted["accepted"]
    assert StoredBank.from_dict(data).policies["tau"].accepted == ()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def test_a_bank_is_read_as_it_was_written() -> None:
    path = save_bank(STORED)
    assert path == bank_path(KEY)
    found = find_bank(KEY, NAMES)
    assert found.to_dict() == STORED.to_dict()
    assert found.bank == STORED.bank and found.policies == STORED.policies and found.measured == STORED.measured
    save_bank(replace(STORED, best="star"))
    assert find_bank(KEY, NAMES).best == "star"


OTHERS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"device": "A slow CPU"}, {}, "made on A fast CPU, this is A slow CPU"),
    (
        {"library": "lib2"},
        {"build": "llama-cpp-python 2"},
        "with the build llama-cpp-python 1, patched, this is llama-",
    ),
    ({"library": "lib2"}, {}, r"llama-cpp-python 1, patched \(lib1\), this is llama-cpp-python 1, patched \(lib2\)"),
    ({"n_threads": 4}, {}, "made with 2 threads, this is 4 threads"),
    ({"mode": "stock"}, {}, "made in patched mode, this is stock mode"),
    ({"setup": "k q8_0"}, {}, "made with k f16, this is k q8_0"),
    ({"model": "f" * 16}, {}, r"for the model smol \(0123456789abcdef\), this is smol \(ffff"),
    ({"heads": "f" * 16}, {"heads": "new.gguf"}, "with the heads heads.gguf, this is new.gguf"),
    ({"device": "B", "n_threads": 8}, {}, "on A fast CPU, this is B; made with 2 threads, this is 8 threads"),
]


@pytest.mark.parametrize(("changes", "names", "reason"), OTHERS)
def test_a_bank_of_something_else_is_refused_with_what_differs(
    changes: dict[str, Any], names: dict[str, str], reason: str
) -> None:
    path = save_bank(STORED)
    heads = changes.pop("heads", KEY.heads)
    key, here = BankKey(KEY.task, heads, replace(SETUP, **changes)), replace(NAMES, **names)
    for read in (lambda: find_bank(key, here), lambda: check_bank(read_bank(path), key, here)):
        with pytest.raises(UsageError, match=reason) as caught:
            read()
        assert (
            caught.value.hint
            == "calibrate again: localspec calibrate smol --task code (with the same --heads and --threads)"
        )


def test_no_bank_at_all_and_one_for_another_task() -> None:
    for _ in range(2):
        with pytest.raises(UsageError, match="no bank of trees for smol and math"):
            find_bank(replace(KEY, task="math"), NAMES)
        save_bank(STORED)
    with pytest.raises(UsageError, match="made for the task code, this is math"):
        check_bank(STORED, replace(KEY, task="math"), NAMES)
    # nothing is said of another model's bank
    with pytest.raises(UsageError, match="no bank of trees for other"):
        find_bank(BankKey("code", KEY.heads, replace(SETUP, model="f" * 16)), replace(NAMES, model="other"))


def drop(*names: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for name in names[:-1]:
            data = data[name]
        del data[names[-1]]

    return change


def put(*names: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for name in names[:-2]:
            data = data[name]
        data[names[-2]] = names[-1]

    return change


BROKEN = [
    (drop("key"), "'key'"),
    (drop("key", "setup", "device"), "device"),
    (put("key", "setup", "n_threads", "2"), "n_threads"),
    (put("names", []), "broken"),
    (put("created", "yesterday"), "yesterday"),
    (put("created", "2030-01-02T03:04:05"), "zone"),
    (put("curve", {}), "cost curve"),
    (put("bank", "trees", []), "at least one tree"),
    (put("bank", "trees", 0, "seconds", -1.0), "not positive"),
    (put("draft_seconds", [0.1]), "draft times"),
    (put("union_seconds", -1), "draft times"),
    (put("policies", {}), "no policy"),
    (put("best", "worst"), "no policy 'worst'"),
    (put("policies", "star", {"policy": None}), "policy"),
    (put("policies", "star", "shares", [1.0]), "shares"),
    (put("policies", "star", "held_out", None), "held_out"),
    (put("policies", "star", "policy", "n_trees", 9), "shares|policy"),
    (put("measured", 0, "tokens_per_second", "fast"), "tokens_per_second"),
    (put("measured", 0, "paths", [[5, 5]]), "broken"),
    (put("version", 99), "version 99"),
    (put("format", "x"), "not a bank"),
]


@pytest.mark.parametrize(("change", "reason"), BROKEN)
def test_a_broken_bank_is_refused_by_name(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    path = save_bank(STORED)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=reason) as caught:
        read_bank(path)
    assert str(path) in caught.value.message and "calibrate again" in (caught.value.hint or "")
    assert not list(stored_banks())


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_ends_in_a_traceback(home: Path, data: st.DataObject) -> None:
    text = json.dumps(STORED.to_dict()).encode()
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    path = home / "bank.json"
    path.write_bytes(text[:start] + data.draw(st.binary(max_size=8)) + text[end:])
    try:
        read_bank(path)
    except UsageError as error:
        assert str(path) in error.message


def test_a_bank_that_is_not_there_or_cannot_be_written(home: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_bank(home / "none.json")
    (home / "data").mkdir()
    (home / "data" / "banks").write_text("a file where the folder should be")
    with pytest.raises(LocalspecError, match="cannot store"):
        save_bank(STORED)


def test_the_costs_of_a_policy_are_those_of_the_filled_tree() -> None:
    bank = STORED.bank
    costs = Costs.of(bank, (0.0, 0.001, 0.002), 0.005)
    assert costs.of_policy("star") == bank.seconds
    expected = [s - d + 0.005 for s, d in zip(bank.seconds, (0.0, 0.001, 0.002), strict=True)]
    assert costs.of_policy("value") == pytest.approx(expected)
    # with nothing to pay for it, choosing is not slower than one tree; a dear filled tree makes it so
    free = fit_policies(LOG, bank.trees, Costs(bank.seconds, bank.seconds))
    assert free["value"].tokens_per_second >= free["star"].tokens_per_second
    dear = fit_policies(LOG, bank.trees, Costs.of(bank, (0.0, 0.0, 0.0), 1.0))
    assert best_policy(dear) == "star"


def test_scores_use_the_heads_that_the_filled_tree_runs() -> None:
    trees = [StaticTree.greedy(1), StaticTree.from_paths([[0], [1], [1, 0], [1, 0, 0]])]
    assert score_depth(trees) == 1 and score_depth([*trees, StaticTree.greedy(2)]) == 2
    assert TreeBank(trees).union.depth == 3
    bank = bank_by_cost(grow_all(LOG, 3), lambda tree: CURVE.cost(tree.n_nodes))
    policies = fit_policies(LOG, bank.trees, Costs(bank.seconds, bank.seconds))
    assert isinstance(policies["value"].policy, Value)
    assert policies["value"].policy.depth == score_depth(bank.trees) < LOG.n_heads


def test_a_switching_policy_must_be_better_on_other_answers() -> None:
    star = FittedPolicy(Star(1, 0), 100.0, 100.0, (1.0,))
    for held_out, best in ((99.0, "star"), (100.1, "star"), (101.0, "value")):
        assert best_policy({"star": star, "value": replace(star, held_out=held_out)}) == best


def test_the_trees_to_run_are_the_planned_bank_and_larger_ones() -> None:
    plan = Plan.of(LOG, 63)
    assert {replayed.tree.n_nodes for replayed in plan.candidates} == set(SIZES)
    chosen = plan.shortlist(CURVE, dict.fromkeys(plan.trees, 0.0))
    sizes = [tree.n_nodes for tree in chosen]
    planned = bank_by_cost(plan.candidates, lambda tree: CURVE.cost(tree.n_nodes))
    assert chosen[0] == StaticTree() and sizes == sorted(set(sizes))
    assert planned.trees[-1] in chosen and len(set(chosen) & set(planned.trees)) <= 6
    assert sum(size > planned.trees[-1].n_nodes for size in sizes) == 2
    # a draft that costs more than it brings leaves plain decoding, and trees to be sure with
    dear = plan.shortlist(CURVE, {tree: 9.0 * tree.n_drafts for tree in plan.trees})
    assert [tree.n_nodes for tree in dear] == [1, 2, 3]
    assert Plan.of(LOG, 5).candidates[-1].tree.n_nodes == 5
