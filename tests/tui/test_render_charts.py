"""Figures as pictures."""

from __future__ import annotations

from dataclasses import replace

from localspec.tui.render import charts, line, styles
from localspec.tui.render.bars import bar, columns
from localspec.tui.render.glyphs import ASCII, UNICODE
from localspec.tui.render.line import Line
from localspec.tui.snapshot import Snapshot, Step

STEP = Step(9, "ptd", (-1, 0, 1), ("a", "b", "c"), (1, 2), "d", 0.1, score=0.4)
BANK = Snapshot(
    n_steps=10,
    n_drafted=40,
    lengths=(2, 5, 2, 0, 1),
    trees=("d1×w1", "d2×w4", "d3×w9"),
    tree_steps=(2, 5, 1),
    tree=1,
    score=0.4,
    edges=(0.2, 0.7),
    step=STEP,
)


def plain(lines: list[Line]) -> list[str]:
    return [line.plain(each) for each in lines]


def lit(each: Line) -> list[tuple[str, str]]:
    """The parts that stand out."""
    return [part for part in each if part[1] == styles.BAR_NOW]


def test_bars_have_parts_of_cells() -> None:
    assert line.plain(bar(0.5, 4, UNICODE)) == "██  "
    assert line.plain(bar(0.53, 4, UNICODE)) == "██▏ "
    assert line.plain(bar(0.001, 4, UNICODE)) == "▏   ", "a little is not nothing"
    assert line.plain(bar(0.0, 4, UNICODE)) == "    "
    assert line.plain(bar(7.0, 4, UNICODE, rest=True)) == "████"
    assert line.plain(bar(0.5, 4, ASCII, rest=True)) == "##.."


def test_columns_stand_in_lines() -> None:
    assert plain(columns([0.0, 0.1, 1.0, 1.5, 2.0], 2, 2.0, UNICODE)) == ["   ▄█", " ▁███"]
    assert plain(columns([0.0, 1.0], 1, 0.0, UNICODE)) == ["  "]


def test_speed_ends_at_the_right_and_tells_the_most() -> None:
    assert plain(charts.speed(Snapshot(rates=(10.0, 40.0, 20.0)), 12, 1, UNICODE)) == ["      ▂█▄ 40"]
    assert plain(charts.speed(Snapshot(rates=(1.0, 2.0, 4.0, 1.0, 0.5)), 7, 1, UNICODE)) == ["█▂▁ 4.0"]
    assert charts.speed(Snapshot(rates=(10.0,)), 12, 1, UNICODE) == []


def test_lengths_have_a_line_each_and_that_of_the_step_stands_out() -> None:
    lines = charts.lengths(BANK, 20, 5, UNICODE)
    assert plain(lines) == [
        "0 █████▎         20%",
        "1 █████████████  50%",
        "2 █████▎         20%",
        "3                 0%",
        "4 ██▋            10%",
    ]
    assert [lit(each) for each in lines] == [[], [], [("█████▎", styles.BAR_NOW)], [], []]


def test_lengths_that_are_too_many_are_put_together() -> None:
    assert plain(charts.lengths(BANK, 20, 3, UNICODE)) == [
        " 0 ████▊         20%",
        " 1 ████████████  50%",
        "2+ ███████▎      30%",
    ]
    long = replace(BANK, lengths=(1,) * 20, step=replace(STEP, path=tuple(range(1, 7))))
    lines = charts.lengths(long, 20, 8, UNICODE)
    assert [line.plain(each)[:5] for each in lines] == ["   0 ", "   1 ", "   2 ", " 3-4 ", " 5-8 ", "9-16 ", " 17+ "]
    assert [bool(lit(each)) for each in lines] == [False] * 4 + [True] + [False] * 2
    assert line.plain(charts.lengths(long, 34, 1, UNICODE)[0]) == "0▁ 1▁ 2▁ 3-4▂ 5-8▄ 9-16█ 17+▃"


def test_lengths_fit_into_one_line() -> None:
    assert plain(charts.lengths(BANK, 20, 1, UNICODE)) == ["0▃ 1█ 2▃ 3  4▂"]
    assert plain(charts.lengths(BANK, 9, 1, ASCII)) == ["0: 1# 2:"]
    assert charts.lengths(replace(BANK, n_drafted=0), 20, 5, UNICODE) == [], "without drafts there is nothing to accept"


def test_the_bank_has_the_share_of_each_tree_and_the_score() -> None:
    scale = "s ───┼──◆────┼───── 0.40"
    assert plain(charts.bank(BANK, 24, 8, UNICODE)) == [
        "  d1×w1 ██▎          20%",
        "▸ d2×w4 █████▌       50%",
        "  d3×w9 █▏           10%",
        scale,
    ]
    in_use = replace(BANK, tree=2)
    assert plain(charts.bank(in_use, 24, 3, UNICODE)) == ["  d2×w4 █████▌       50%", "▸ d3×w9 █▏           10%", scale]
    assert plain(charts.bank(in_use, 24, 1, UNICODE)) == ["▸ d3×w9 █▏           10%"], "the one in use is always there"
    assert charts.bank(Snapshot(trees=("d1×w1",)), 24, 8, UNICODE) == [], "it was not used"


def test_the_gauge_shows_the_score_among_its_edges() -> None:
    assert plain(charts.gauge(BANK, 28, UNICODE)) == ["s ────┼───◆─────┼────── 0.40"]
    assert plain(charts.gauge(BANK, 28, ASCII)) == ["s ----|---^-----|------ 0.40"]
    beyond = replace(BANK, edges=(-1.0, 2.0))
    assert plain(charts.gauge(beyond, 16, UNICODE)) == ["s ───◆───── 0.40"]
    assert charts.gauge(replace(BANK, score=None), 28, UNICODE) == []


def test_the_curve_tells_its_end_and_marks_the_step() -> None:
    snapshot = Snapshot(curve=((1, 1.0), (3, 1.0), (5, 2.0)), step=STEP)
    lines = charts.curve(snapshot, 15, 2, UNICODE)
    assert plain(lines) == ["   ▄█ 2.0× at 5", "█████"]
    assert lines[1] == [("██", styles.BAR), ("█", styles.BAR_NOW), ("██", styles.BAR)]
    assert charts.curve(Snapshot(), 20, 1, UNICODE) == []


def test_the_context_and_the_prompt_are_told() -> None:
    snapshot = Snapshot(n_ctx=1000, n_prompt=300, n_cached=100, prompt_seconds=0.5, n_tokens=100)
    assert plain(charts.context(snapshot, 24, UNICODE)) == ["ctx ████▍░░░░░░ 400/1000"]
    assert plain(charts.prompt(snapshot, 40, UNICODE)) == ["prompt 300 (100 known), 400 tok/s"]
    assert ("██████████▌", styles.WARNING) in charts.context(replace(snapshot, n_tokens=650), 24, UNICODE)[0]


def test_no_picture_is_wider_than_asked() -> None:
    snapshot = replace(BANK, n_ctx=100, n_prompt=50, rates=(1.0, 2.0) * 40, curve=((1, 1.0), (64, 5.0)))
    for width in range(4, 60):
        lines = [
            *charts.speed(snapshot, width, 2, UNICODE),
            *charts.lengths(snapshot, width, 1, UNICODE),
            *charts.gauge(snapshot, width, UNICODE),
            *charts.curve(snapshot, width, 2, UNICODE),
        ]
        if width >= 16:
            lines += charts.lengths(snapshot, width, 4, UNICODE) + charts.bank(snapshot, width, 4, UNICODE)
            lines += charts.context(snapshot, width, UNICODE) + charts.prompt(snapshot, width, UNICODE)
        assert max(map(line.width, lines), default=0) <= width
