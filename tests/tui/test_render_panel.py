"""All pictures below each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from localspec.tui.render.panel import panel
from localspec.tui.snapshot import Snapshot
from tests.tui.test_render_tree import FOREST, chain

WRITING = Snapshot(
    model="tiny",
    n_ctx=1000,
    phase="writing",
    method="entmtp-value",
    n_prompt=200,
    n_tokens=50,
    n_steps=20,
    n_drafted=140,
    n_accepted=30,
    seconds=1.25,
    rate=41.2,
    speedup=1.8,
    measured=True,
    shape="d3×w3",
    lengths=(4, 6, 6, 4),
    trees=("d1×w1", "d3×w3"),
    tree_steps=(5, 15),
    tree=1,
    score=0.4,
    edges=(0.2,),
    rates=(10.0, 40.0, 20.0, 40.0),
    curve=((1, 1.0), (8, 2.0)),
    step=FOREST,
    n_kept=20,
    most_lines=9,
)


def lines(snapshot: Snapshot, width: int = 34, height: int = 60, ascii_only: bool = False) -> list[str]:
    return [line.rstrip() for line in panel(snapshot, width, height, ascii_only=ascii_only).plain.split("\n")]


def test_the_whole_panel() -> None:
    assert lines(WRITING) == [
        "41.2 tok/s (mean 40.0)",
        "1.80× plain (measured)",
        "entmtp-value d3×w3 · 2.50 tok/step",
        "                            █ █ 40",
        "                           ▄███",
        "─ step 1 · d3×w3 · 2/7 taken ─────",
        "●␣The",
        "├✓␣quick",
        "│ ├✓␣brown",
        "│ │ ├·␣fox",
        "│ │ └+␣bear",
        "│ └·␣dog",
        "├·␣lazy ·␣cat",
        "└·␣old",
        "",
        "─ drafts accepted in a step ──────",
        "0 ██████████████████           20%",
        "1 ███████████████████████████  30%",
        "2 ███████████████████████████  30%",
        "3 ██████████████████           20%",
        "─ trees, share of steps ──────────",
        "  d1×w1 █████▎                 25%",
        "▸ d3×w3 ███████████████▊       75%",
        "s ─────┼────◆──────────────── 0.40",
        "─ cost of n nodes in plain steps ─",
        "         ▁▁▂▂▃▃▄▄▅▅▆▆▇▇█ 2.0× at 8",
        "▄▅▅▆▆▇▇█████████████████",
        "████████████████████████",
        "prompt 200",
        "ctx █████▎░░░░░░░░░░░░░░░ 250/1000",
        "✓ taken  · not  + bonus",
    ]


def test_a_short_panel_keeps_what_matters_most() -> None:
    assert lines(WRITING, height=14) == [
        "41.2 tok/s (mean 40.0)",
        "1.80× plain (measured)",
        "entmtp-value d3×w3 · 2.50 tok/step",
        "                           ▂█▄█ 40",
        "─ step 1 · d3×w3 · 2/7 taken ─────",
        "●␣The",
        "├✓␣quick",
        "│ └✓␣brown",
        "│   └+␣bear",
        "└·␣lazy ·␣cat",
        "… 3 more nodes",
        "─ drafts accepted in a step ──────",
        "0▅ 1█ 2█ 3▅",
        "ctx █████▎░░░░░░░░░░░░░░░ 250/1000",
    ]
    assert lines(WRITING, height=4) == [
        "41.2 tok/s (mean 40.0)",
        "1.80× plain (measured)",
        "entmtp-value d3×w3 · 2.50 tok/step",
        "ctx █████▎░░░░░░░░░░░░░░░ 250/1000",
    ]


def test_a_wide_panel_has_two_columns() -> None:
    assert lines(WRITING, width=72, height=14) == [
        "41.2 tok/s (mean 40.0)               ─ drafts accepted in a step ──────",
        "1.80× plain (measured)                0 ██████████▍                 20%",
        "entmtp-value d3×w3 · 2.50 tok/step    1 ███████████████▋            30%",
        "                            █ █ 40   2+ ██████████████████████████  50%",
        "                           ▄███      ─ trees, share of steps ──────────",
        "─ step 1 · d3×w3 · 2/7 taken ─────     d1×w1 █████▎                 25%",
        "●␣The                                ▸ d3×w3 ███████████████▊       75%",
        "├✓␣quick                             s ─────┼────◆──────────────── 0.40",
        "│ └✓␣brown                           ─ cost of n nodes in plain steps ─",
        "│   └+␣bear                                   ▁▁▂▂▃▃▄▄▅▅▆▆▇▇█ 2.0× at 8",
        "├·␣lazy ·␣cat                        ▄▅▅▆▆▇▇█████████████████",
        "└·␣old                               ████████████████████████",
        "… 2 more nodes                       prompt 200",
        "✓ taken  · not  + bonus              ctx █████▎░░░░░░░░░░░░░░░ 250/1000",
    ]


def test_without_utf8_it_is_made_of_ascii() -> None:
    shown = lines(WRITING, ascii_only=True)
    assert "".join(shown).isascii()
    assert "- step 1 | d3xw3 | 2/7 taken -----" in shown
    assert "> d3xw3 ################       75%" in shown


def test_pictures_stay_where_they_are_while_steps_go_by() -> None:
    titles = [line for line in lines(WRITING) if line.startswith("─")]
    for step in (chain(9, 7), chain(1, 0), None):
        shown = lines(replace(WRITING, step=step))
        assert [shown.index(title) for title in titles[1:]] == [lines(WRITING).index(title) for title in titles[1:]]


def test_a_step_that_is_looked_at_again_says_so() -> None:
    assert "─ step 1 (paused) · 2/7 taken ────" in lines(replace(WRITING, at=0))
    assert "─ step 1 (17 back) · 2/7 taken ───" in lines(replace(WRITING, at=17))
    assert lines(replace(WRITING, at=17), 50)[5] == "─ step 1 (17 back) · d3×w3 · 2/7 taken ───────────"


def test_the_tree_of_a_step_is_named() -> None:
    assert "─ step 1 · d3×w3 · 2/7 taken ─────" in lines(WRITING)
    from_bank = replace(WRITING, step=replace(FOREST, tree=0), trees=("small", "large"))
    assert "─ step 1 · small · 2/7 taken ─────" in lines(from_bank)
    assert "─ step 1 · d3×w3 · 2/7 taken ─────" in lines(replace(from_bank, trees=(), tree_steps=(), tree=None))
    assert "─ step 1 · no draft ──────────────" in lines(replace(WRITING, step=chain(0, 0)))


def test_speculation_that_is_off_says_so_before_the_speedup() -> None:
    shown = lines(replace(WRITING, off="not faster here"))
    assert shown[1] == "spec off: not faster here · 1.80×"
    assert shown[2] == "entmtp-value · 2.50 tok/step"


def test_a_lossy_answer_says_so_and_explains_the_mark() -> None:
    shown = lines(replace(WRITING, lossless=False, accept="loose", n_forgiven=12))
    assert "≈ lossy: 12 forgiven" in shown
    assert shown[-1] == "✓ taken ≈ forgiven · not + bonus"


def test_what_is_not_known_is_hidden() -> None:
    assert lines(Snapshot(model="tiny", n_ctx=100, method="ptd")) == ["ready", "ptd"]
    shown = lines(Snapshot(model="tiny", n_ctx=100, method="ptd", phase="reading"))
    assert shown == ["reading the prompt", "speed-up not known yet", "ptd"]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_size_fits(ascii_only: bool) -> None:
    snapshot = replace(WRITING, step=chain(30, 30), lengths=(1,) * 20, most_lines=20, lossless=False)
    for width in (*range(1, 40), 80, 200):
        for height in (*range(1, 40), 100):
            shown = lines(snapshot, width, height, ascii_only)
            assert len(shown) <= height
            assert max(map(cell_len, shown)) <= width
