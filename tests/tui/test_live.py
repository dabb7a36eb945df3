"""The state behind the panels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.events import Choice, DoneEvent, Event, NoteEvent, PromptEvent, Stats
from localspec.tui.live import KEPT_STEPS, Live
from localspec.tui.snapshot import Snapshot, shape_name
from localspec.tui.tally import LATELY
from tests.tui.made import INFO, Words

#: a root with two drafts, the first of which has a child
FORKED = (-1, 0, 0, 1)
TEXTS = (" the", " red", " old", " fox")


def live(words: Words, events: Iterable[Event] = (), method: str = "ptd", accept: str = "strict") -> Live:
    state = Live(words.piece)
    state.load(INFO)
    state.begin(method, accept)
    for event in events:
        state.feed(event)
    return state


def looked_at(words: Words, *events: Event, method: str = "ptd", accept: str = "strict") -> Snapshot:
    return live(words, events, method, accept).snapshot()


def test_a_loaded_model_waits() -> None:
    state = Live(Words().piece)
    assert state.snapshot() == Snapshot()
    state.load(INFO)
    snapshot = state.snapshot()
    assert (snapshot.model, snapshot.n_ctx, snapshot.phase, snapshot.method) == ("tiny", 1024, "idle", "ptd")
    assert snapshot.curve == INFO.curve
    assert snapshot.step is None


def test_an_answer_is_counted() -> None:
    words = Words()
    state = live(words)
    assert state.snapshot().phase == "reading"
    state.feed(PromptEvent(n_prompt=30, n_cached=10, seconds=0.5))
    assert state.snapshot().phase == "writing"
    state.feed(words.step(TEXTS, FORKED, path=(1, 3), bonus=" ran", seconds=0.2))
    state.feed(words.step(seconds=0.1))
    snapshot = state.snapshot()
    assert (snapshot.n_prompt, snapshot.n_cached, snapshot.prompt_seconds) == (30, 10, 0.5)
    assert (snapshot.n_tokens, snapshot.n_steps, snapshot.n_drafted, snapshot.n_accepted) == (4, 2, 3, 2)
    assert snapshot.n_used == 34
    assert snapshot.mean_rate == pytest.approx(4 / 0.3)
    assert snapshot.tokens_per_step == 2
    assert snapshot.lengths == (1, 0, 1)
    assert snapshot.off is None
    assert snapshot.lossless


def test_the_rate_of_now_is_that_of_the_last_second() -> None:
    words = Words()
    slow, fast = words.step(seconds=0.5), words.step(seconds=0.125)
    assert looked_at(words, slow, slow, slow).rate == pytest.approx(2)
    snapshot = looked_at(words, *[slow] * 10, *[fast] * 8)
    assert snapshot.rate == pytest.approx(8)
    assert snapshot.mean_rate == pytest.approx(18 / 6)
    # a value for each half second of slow steps, and for two fast ones
    assert snapshot.rates == pytest.approx([2.0] * 10 + [8.0] * 4)


def test_a_step_longer_than_a_second_has_a_rate() -> None:
    words = Words()
    assert looked_at(words, words.step(seconds=0.1), words.step(seconds=4.0)).rate == pytest.approx(0.25)


def test_the_speedup_is_an_estimate_until_plain_steps_were_measured() -> None:
    words = Words()
    guess, known = Choice(True, 0.05, measured=False), Choice(True, 0.1, measured=True)
    steps = [words.step(TEXTS, FORKED, (1, 3), seconds=0.1, choice=choice) for choice in (guess, known)]
    assert looked_at(words, words.step()).speedup is None
    snapshot = looked_at(words, steps[0])
    assert (snapshot.speedup, snapshot.measured) == (pytest.approx(3 * 0.05 / 0.1), False)
    # what was written before the first measurement is held against it as well
    snapshot = looked_at(words, *steps)
    assert (snapshot.speedup, snapshot.measured) == (pytest.approx(6 * 0.1 / 0.2), True)


def test_notes_tell_why_speculation_is_off() -> None:
    words = Words()
    state = live(words, [words.step(), NoteEvent("spec off: not faster here"), NoteEvent("something else")])
    assert state.snapshot().off == "not faster here"
    state.feed(NoteEvent("spec on again"))
    assert state.snapshot().off is None
    state.feed(NoteEvent("spec off: the text is too long for the draft model"))
    state.begin("ptd")
    assert state.snapshot().off is None, "an answer begins with speculation"


def test_without_a_note_the_steps_tell_that_speculation_is_off() -> None:
    words = Words()
    assert looked_at(words, words.step(choice=Choice(on=False))).off == "not faster here"
    assert looked_at(words, words.step(method="plain"), method="plain").off == "plain decoding was asked for"
    assert looked_at(words, words.step(), DoneEvent("stop", "", Stats(n_steps=1))).off == "no draft was worth verifying"


def test_a_lossy_answer_names_what_was_forgiven() -> None:
    words = Words()
    snapshot = looked_at(words, words.step(TEXTS, FORKED, (1, 3), forgiven=(1,)), accept="loose")
    assert (snapshot.accept, snapshot.lossless, snapshot.n_forgiven) == ("loose", False, 1)
    assert snapshot.step is not None
    assert snapshot.step.forgiven == (3,)


def test_the_end_has_the_last_word() -> None:
    words = Words()
    done = DoneEvent(
        "length", "", Stats(n_prompt=7, n_tokens=5, n_steps=3, seconds=2.0), lossless=True, accept="strict"
    )
    snapshot = looked_at(words, words.step(), done, accept="loose")
    assert (snapshot.phase, snapshot.finish, snapshot.n_tokens, snapshot.n_prompt) == ("done", "length", 5, 7)
    assert (snapshot.lossless, snapshot.accept) == (True, "strict")
    state = live(words, [words.step()])
    state.fail()
    assert (state.snapshot().phase, state.snapshot().finish) == ("done", "failed")


def test_the_newest_step_is_shown_with_its_texts() -> None:
    words = Words()
    step = looked_at(words, words.step(), words.step(TEXTS, FORKED, (2,), bonus="!", seconds=0.3)).step
    assert step is not None
    assert (step.number, step.texts, step.parents, step.path, step.bonus) == (2, TEXTS, FORKED, (2,), "!")
    assert (step.n_drafted, step.n_tokens, step.seconds) == (3, 2, 0.3)


def test_an_answer_that_ends_within_the_path_has_no_bonus_token() -> None:
    words = Words()
    step = looked_at(words, words.step(TEXTS, FORKED, (1,), bonus=None)).step
    assert step is not None
    assert (step.bonus, step.n_tokens) == (None, 1)


def test_texts_are_looked_up_for_snapshots_alone() -> None:
    words = Words()
    state = live(words, [words.step(TEXTS, FORKED, (1, 3))] * 50)
    assert words.asked == 0
    state.snapshot()
    assert words.asked == len(TEXTS) + 1


def test_earlier_steps_can_be_looked_at() -> None:
    words = Words()
    state = live(words, [words.step() for _ in range(KEPT_STEPS + 5)])
    assert state.snapshot().n_kept == KEPT_STEPS
    numbers = [step.number for at in (None, 0, 1, 10**6) if (step := state.snapshot(at).step) is not None]
    assert numbers == [205, 205, 204, 6]
    assert [state.snapshot(at).at for at in (None, 0, 1, 10**6)] == [None, 0, 1, KEPT_STEPS - 1]


def test_the_largest_of_the_kept_trees_is_known() -> None:
    words = Words()
    state = live(words, [words.step(TEXTS, FORKED)])
    assert state.snapshot().most_lines == 5, "the root, two beside each other, the taken one's child, the bonus token"
    for _ in range(KEPT_STEPS - 1):
        state.feed(words.step())
    assert state.snapshot().most_lines == 5
    state.feed(words.step())
    assert state.snapshot().most_lines == 1


def test_steps_outlast_their_answer_but_not_their_model() -> None:
    words = Words()
    state = live(words, [words.step(), words.step()])
    state.begin("ptd")
    assert state.snapshot().step is None, "this answer has none yet"
    step = state.snapshot(at=0).step
    assert step is not None
    assert step.number == 2
    state.load(replace(INFO, method="lookup"))
    assert state.snapshot(at=0).step == step, "still the same model"
    state.load(replace(INFO, path=Path("/models/other.gguf")))
    assert state.snapshot(at=0).step is None
    assert state.snapshot().phase == "idle"


def test_the_trees_of_a_bank_are_counted() -> None:
    words = Words()

    def step(tree: int | None) -> Event:
        choice = Choice(True, tree=tree, n_trees=3, score=0.3 if tree else None, edges=(0.2, 0.5))
        return words.step(TEXTS, FORKED, choice=choice) if tree is not None else words.step(choice=choice)

    state = live(words, map(step, (1, 0, None, 1)))
    snapshot = state.snapshot()
    assert snapshot.tree_steps == (1, 2, 0)
    assert (snapshot.tree, snapshot.score, snapshot.edges) == (1, 0.3, (0.2, 0.5))
    assert snapshot.trees == ("d2×w2", "d2×w2", "tree 3"), "those seen are named by their shapes"
    state.load(replace(INFO, trees=("small", "middle", "large")))
    assert state.snapshot().trees == ("small", "middle", "large")
    assert state.snapshot().shape == "middle"


def test_the_tree_in_use_is_named_by_its_shape_until_it_is_long_gone() -> None:
    words = Words()
    state = live(words, [words.step(TEXTS, FORKED)])
    assert state.snapshot().shape == "d2×w2"
    for _ in range(LATELY - 1):
        state.feed(words.step())
    assert state.snapshot().shape == "d2×w2"
    state.feed(words.step())
    assert state.snapshot().shape == ""


def test_shapes_have_names() -> None:
    assert shape_name((-1,)) == ""
    assert shape_name((-1, 0, 1, 2)) == "d3×w1"
    assert shape_name((-1, 0, 0, 1, 2, 2)) == "d2×w3"


def test_neither_the_native_library_nor_textual_is_needed() -> None:
    modules = ("live", "feed", "remote", "palette", *(f"render.{name}" for name in ("panel", "status", "tint", "tree")))
    imports = "; ".join([f"import localspec.tui.{name}" for name in modules])
    code = f"import sys; {imports}; print([name for name in ('llama_cpp', 'textual') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
