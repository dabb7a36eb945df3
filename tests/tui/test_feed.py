"""Snapshots on their way to other processes."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from localspec.errors import ServerError
from localspec.tui.feed import Publisher, from_dict, from_json, to_dict, to_json
from localspec.tui.live import Live
from localspec.tui.render.panel import panel
from localspec.tui.render.status import status_line
from localspec.tui.snapshot import Snapshot, Step
from tests.tui.made import INFO, Words
from tests.tui.test_render_panel import WRITING


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot(),
        WRITING,
        replace(
            WRITING, off="not faster here", finish="cancelled", speedup=None, score=None, tree=None, at=3, step=None
        ),
        replace(
            WRITING, step=Step(3, "ptd", (-1, 0), ("\x1b\udc80", "日本 🙂"), (1,), None, 0.5, (1,), False, 1, 0.25)
        ),
    ],
)
def test_a_snapshot_survives_the_way(snapshot: Snapshot) -> None:
    assert from_json(to_json(snapshot)) == snapshot


def test_fields_of_later_versions_are_let_pass() -> None:
    assert from_dict({**data(), "mood": "good"}) == WRITING


def data(**changes: Any) -> dict[str, Any]:
    """A snapshot as JSON data with other values in some fields; "step.path" is a field of its step."""
    made: dict[str, Any] = json.loads(to_json(WRITING))
    for name, value in changes.items():
        outer, _, inner = name.partition(".")
        if inner:
            made[outer][inner] = value
        else:
            made[outer] = value
    return made


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"format": "localspec-bench"}, "format localspec-live"),
        ({"version": 2}, "version 2"),
        ({"rate": "fast"}, 'rate is "fast", not a number'),
        ({"rate": True}, "rate is true"),
        ({"rate": float("nan")}, "rate"),
        ({"rate": 10**400}, "rate"),
        ({"n_tokens": 1.5}, "n_tokens is 1.5, not a whole number"),
        ({"n_tokens": -1}, "n_tokens"),
        ({"n_tokens": 10**30}, "n_tokens"),
        ({"lossless": 1}, "lossless is 1, not true or false"),
        ({"phase": "asleep"}, "one of idle, reading, writing, done"),
        ({"phase": ["idle"]}, "phase"),
        ({"model": "x" * 10**5}, "model"),
        ({"lengths": [1, -1]}, "negative"),
        ({"lengths": [1] * 10**5}, "lengths"),
        ({"lengths": {"0": 1}}, "lengths"),
        ({"lengths": [1, None]}, "lengths[1] is null"),
        ({"tree_steps": [1] * 9}, "tree_steps"),
        ({"tree": 2}, "tree is 2"),
        ({"tree": -1}, "tree is -1"),
        ({"curve": [[1, 1.0], [1, 2.0]]}, "curve"),
        ({"curve": [[1, 1.0, 3]]}, "curve[0]"),
        ({"step": "none"}, "step"),
        ({"step.texts": ["a"]}, "8 nodes and 1 texts"),
        ({"step.parents": [0] * 8}, "parents"),
        ({"step.parents": [-1, 0, 0, 0, 1, 1, 2, 7]}, "parents"),
        ({"step.path": [4]}, "path"),
        ({"step.path": [1, 9]}, "path"),
        ({"step.forgiven": [3]}, "forgiven"),
        ({"step.number": None}, "step.number is null"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ServerError) as caught:
        from_dict(data(**changes))
    assert named in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.hint


def test_names_cannot_command_the_terminal() -> None:
    read = from_dict(data(model="a\x1b[2Jb", trees=["x\ny", "é"], off="\udc80", **{"step.bonus": "\x1b"}))
    assert (read.model, read.trees, read.off) == ("a\ufffd[2Jb", ("x\ufffdy", "é"), "\ufffd")
    assert read.step is not None
    assert read.step.bonus == "\x1b", "tokens are what they are"
    drawn = panel(read, 80, 40).plain + status_line(read, 200).plain
    assert all(char.isprintable() or char == "\n" for char in drawn)


def test_a_field_that_is_missing_is_named() -> None:
    lacking = data()
    del lacking["rates"], lacking["step"]["path"]
    with pytest.raises(ServerError, match="lacks rates"):
        from_dict(lacking)
    with pytest.raises(ServerError, match=r"lacks step\.path"):
        from_dict({**lacking, "rates": []})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"null", b"\xff", b"[" * 10**6])
def test_what_is_no_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(ServerError):
        from_json(body)


def test_a_publisher_gives_whole_snapshots_while_steps_arrive() -> None:
    words = Words()
    live = Live(words.piece)
    live.load(INFO)
    live.begin("ptd")
    publisher = Publisher(live)
    event = words.step((" the", " red", " old"), (-1, 0, 0), path=(1,), bonus=" fox")
    n = 3000

    def feed() -> None:
        for _ in range(n):
            with publisher as state:
                state.feed(event)

    thread = threading.Thread(target=feed)
    thread.start()
    seen = []
    while thread.is_alive():
        seen.append(from_json(publisher.body()))
    thread.join()
    seen.append(from_json(publisher.body()))
    assert all(snapshot.n_tokens == 2 * snapshot.n_steps for snapshot in seen)
    assert seen[-1].n_steps == n
    assert "✓␣red" in panel(seen[-1], 34, 30).plain


def test_an_error_leaves_the_publisher_usable() -> None:
    publisher = Publisher(Live(Words().piece))
    with pytest.raises(KeyError), publisher:
        raise KeyError
    assert from_json(publisher.body()) == Snapshot()


def test_the_object_says_what_it_is() -> None:
    assert {name: to_dict(Snapshot())[name] for name in ("format", "version", "phase", "step")} == {
        "format": "localspec-live",
        "version": 1,
        "phase": "idle",
        "step": None,
    }
