"""The status line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from localspec.tui.render import styles
from localspec.tui.render.status import status_line
from localspec.tui.snapshot import Snapshot
from tests.tui.test_render_tree import styled

WRITING = Snapshot(
    model="tiny",
    n_ctx=8192,
    phase="writing",
    method="ptd",
    n_prompt=204,
    n_tokens=1000,
    n_steps=320,
    n_drafted=900,
    n_accepted=680,
    seconds=25.0,
    rate=41.24,
    speedup=1.8,
    measured=True,
    shape="d4×w3",
)
OFF = replace(WRITING, off="not faster here", speedup=1.0)
LOSSY = replace(WRITING, lossless=False, accept="loose", n_forgiven=3)


def line(snapshot: Snapshot, width: int = 200, ascii_only: bool = False) -> str:
    return status_line(snapshot, width, ascii_only=ascii_only).plain


def test_everything_is_told_where_there_is_room() -> None:
    assert line(WRITING) == (
        "41.2 tok/s (mean 40.0) · 1.80× plain (measured) · ptd d4×w3 · 3.12 tok/step · ctx 1204/8192"
    )
    assert line(WRITING, ascii_only=True) == (
        "41.2 tok/s (mean 40.0) | 1.80x plain (measured) | ptd d4xw3 | 3.12 tok/step | ctx 1204/8192"
    )


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, "41.2 tok/s (mean 40.0) · 1.80× plain · ptd d4×w3 · 3.12 tok/step · ctx 1204/8192"),
        (60, "41.2 tok/s · 1.80× plain · ptd · 3.12/step · ctx 1204/8192"),
        (40, "41.2 tok/s · 1.80× · ptd · 3.12 tok/step"),
        (20, "41.2 tok/s · 1.80×"),
        (10, "41.2 tok/s"),
        (6, "41.2…"),
    ],
)
def test_the_least_important_parts_go_first(width: int, expected: str) -> None:
    assert line(WRITING, width) == expected


def test_an_estimate_says_so_at_any_width() -> None:
    estimate = replace(WRITING, measured=False)
    assert "1.80× plain (est.)" in line(estimate)
    for width in range(1, 120):
        shown = line(estimate, width)
        assert "1.80×" not in shown or "est." in shown


def test_speculation_that_is_off_says_why() -> None:
    assert line(OFF) == (
        "41.2 tok/s (mean 40.0) · 1.00× plain (measured) · spec off: not faster here · ptd · 3.12 tok/step"
        " · ctx 1204/8192"
    )
    assert line(OFF, 60) == "41.2 tok/s · 1.00× plain · spec off: not faster here · ptd"
    assert line(OFF, 24) == "41.2 tok/s · spec off"
    assert styled(status_line(OFF, 60), "spec off") == {styles.WARNING}


def test_an_answer_that_was_faster_does_not_say_that_it_was_not() -> None:
    ended = replace(WRITING, off="not faster here", speedup=1.4, phase="done", finish="stop")
    assert "1.40× plain (measured) · spec off at the end · ptd" in line(ended, 120)
    assert "spec off: not faster here" in line(replace(ended, speedup=0.99), 120)


def test_a_lossy_answer_says_so_in_words() -> None:
    assert "≈ lossy (loose): 3 tokens forgiven" in line(LOSSY)
    assert "≈ lossy (loose): 1 token forgiven" in line(replace(LOSSY, n_forgiven=1))
    assert line(LOSSY, 60) == "41.2 tok/s · 1.80× · ptd · ≈ lossy: 3 forgiven · 3.12/step"
    assert line(LOSSY, 20) == "41.2 tok/s · ≈ lossy"
    assert "~ lossy (loose)" in line(LOSSY, ascii_only=True)


def test_what_goes_on_before_there_is_a_rate() -> None:
    assert line(Snapshot(n_ctx=512, method="ptd")) == "ready · ptd · ctx 0/512"
    assert line(Snapshot(n_ctx=512, method="ptd", phase="reading")) == "reading the prompt · ptd · ctx 0/512"
    assert line(Snapshot(phase="done", finish="cancelled")) == "stopped"


def test_after_the_end_the_mean_counts() -> None:
    done = replace(WRITING, phase="done", finish="length")
    assert line(done).startswith("40.0 tok/s · 1.80×")
    assert line(done).endswith(" · cut at the limit")
    assert "cut" not in line(replace(done, finish="stop"))


def test_plain_decoding_is_not_compared_with_itself() -> None:
    plain = replace(WRITING, method="plain", off="plain decoding was asked for", n_drafted=0, n_accepted=0, shape="")
    assert line(plain) == "41.2 tok/s (mean 40.0) · no speculation · plain · ctx 1204/8192"


def test_a_full_context_is_a_warning() -> None:
    text = status_line(replace(WRITING, n_ctx=1300), 200)
    assert styled(text, "ctx") == {styles.WARNING}


@pytest.mark.parametrize("snapshot", [WRITING, OFF, LOSSY, Snapshot()])
def test_no_line_is_too_wide(snapshot: Snapshot) -> None:
    for width in range(1, 130):
        assert cell_len(line(snapshot, width)) <= width
