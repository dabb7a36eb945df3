"""How often the screen is updated."""

from __future__ import annotations

import pytest

from localspec.tui.pace import PANEL_RATE, SHARE, SLOWEST, TEXT_RATE, Pace


def run(pace: Pace, work: float, panel_work: float = 0.0, seconds: float = 30.0) -> tuple[float, float, float]:
    """Updates of text and panel a second, and the share of the time worked, where an update takes so many seconds."""
    now = cpu = 0.0
    n = n_panel = 0
    while now < seconds:
        now += pace.update(now, cpu)
        cpu += work
        n += 1
        if pace.panel_due(now):
            cpu += panel_work
            n_panel += 1
    return n / now, n_panel / now, cpu / now


def test_cheap_updates_come_as_often_as_is_good() -> None:
    text, panel, _ = run(Pace(), 0.0002, 0.0005)
    assert text == pytest.approx(TEXT_RATE, rel=0.05)
    assert panel == pytest.approx(PANEL_RATE, rel=0.1)


@pytest.mark.parametrize(("work", "panel"), [(0.004, 0.004), (0.01, 0.0), (0.002, 0.012)])
def test_dear_updates_keep_to_their_share(work: float, panel: float) -> None:
    *_, share = run(Pace(), work, panel)
    assert share <= 1.15 * SHARE


def test_the_dearest_updates_still_come() -> None:
    text, *_ = run(Pace(), 0.5)
    assert text == pytest.approx(SLOWEST, rel=0.1)


@pytest.mark.parametrize("most", [0.5, 2.0, 8.0])
def test_a_person_has_the_last_word(most: float) -> None:
    text, panel, _ = run(Pace(most), 0.0001)
    assert text == pytest.approx(most, rel=0.1)
    assert panel <= most + 0.1


def test_one_slow_update_does_not_stop_the_next_ones() -> None:
    pace = Pace()
    for i in range(20):
        pace.update(i * 0.05, i * 0.0005)
    pace.update(1.0, 0.3)
    now, cpu, n = 1.0, 0.3, 0
    while now < 6.0:
        cpu += 0.0005
        now += pace.update(now, cpu)
        n += 1
    assert n > 20
