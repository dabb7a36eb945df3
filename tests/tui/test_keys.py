"""The keys of the chat: what people may write in a config file, and what comes of it."""

from __future__ import annotations

import pytest

from localspec.tui.key_names import key_name, types_or_moves
from localspec.tui.keys import ACTIONS, bindings, key_text, keys_of, problems


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl+r", "ctrl+r"),
        ("Ctrl+R", "ctrl+r"),
        ("control+r", "ctrl+r"),
        ("shift+ctrl+up", "ctrl+shift+up"),
        ("esc", "escape"),
        ("return", "enter"),
        ("PgUp", "pageup"),
        ("F5", "f5"),
        ("?", "question_mark"),
        ("question_mark", "question_mark"),
        ("/", "slash"),
        ("-", "minus"),
        ("+", "plus"),
        ("ctrl++", "ctrl+plus"),
        (",", "comma"),
        ("A", "A"),
        ("shift+a", "A"),
        ("é", "é"),
        (" space ", "space"),
        ("ctrl+m", "enter"),  # what terminals send
    ],
)
def test_ways_to_write_a_key(written: str, key: str) -> None:
    assert key_name(written) == (key, None)


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("f99", "did you mean f9"),
        ("hypr+x", "'hypr' is none of"),
        ("", "no key"),
        ("\x07", "no key"),
        ("entr", "enter"),
    ],
)
def test_a_wrong_key_is_told(written: str, part: str) -> None:
    key, reason = key_name(written)
    assert key is None
    assert reason is not None and part in reason


def test_keys_that_a_text_field_needs() -> None:
    needed = ("a", "A", "é", "space", "slash", "minus", "left", "shift+left", "enter", "escape")
    assert all(types_or_moves(key) for key in needed)
    assert not any(types_or_moves(key) for key in ("ctrl+r", "f1", "alt+c", "pageup", "ctrl+left"))


def test_the_defaults_are_in_order() -> None:
    assert problems({}) == []
    assert {binding.id for binding in bindings({})} == {action.id for action in ACTIONS if action.keys}
    assert {key for action in ACTIONS for key in action.keys} == {binding.key for binding in bindings({})}


def test_a_key_that_types_never_goes_before_the_prompt() -> None:
    priority = {binding.key: binding.priority for binding in bindings({}, "anywhere")}
    assert not priority["t"] and not priority["left"] and not priority["escape"]
    assert priority["ctrl+t"] and priority["f1"] and priority["pageup"]
    assert not any(binding.priority for binding in bindings({}, "prompt"))


def test_scopes_part_the_bindings() -> None:
    assert {binding.id for binding in bindings({}, "prompt")} == {"send", "newline"}
    assert len(bindings({}, "prompt")) + len(bindings({}, "anywhere")) == len(bindings({}))


def test_chosen_keys_take_the_place_of_defaults() -> None:
    keys = {"panel": ["F10", "p"], "logs": []}
    assert problems(keys) == []
    assert keys_of(keys)["panel"] == ("f10", "p")
    assert keys_of(keys)["logs"] == ()
    # the footer shows the first key alone
    assert [(b.key, b.show) for b in bindings(keys) if b.id == "panel"] == [("f10", True), ("p", False)]


def test_a_chosen_key_goes_before_a_default_one() -> None:
    keys = {"panel": ["r"]}
    assert problems(keys) == []  # ctrl+r is left
    assert keys_of(keys)["regenerate"] == ("ctrl+r",)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"panl": ["x"]}, "there is no action 'panl'; did you mean panel?"),
        ({"panel": ["ctlr+x"]}, "panel: 'ctlr+x' is no key: 'ctlr' is none of alt, ctrl, hyper, meta, shift, super"),
        ({"send": ["a"]}, "send: 'a' is needed for writing"),
        ({"quit": ["ctrl+c"]}, "quit: ctrl+c copies what is selected, and twice in a row it quits"),
        (
            {"settings": ["f1", "?"]},
            "help has no key left, since f1 went to settings: give it another, or write help = []",
        ),
        ({"model": ["f12"], "logs": ["f12"]}, "f12 is given to model and to logs: it stays with model"),
    ],
)
def test_problems_name_the_reason_and_the_way_out(keys: dict[str, list[str]], told: str) -> None:
    assert problems(keys) == [told]


def test_the_rest_is_used_beside_a_problem() -> None:
    keys = {"panel": ["nonsense", "f10"], "model": ["nonsense"]}
    assert len(problems(keys)) == 2
    assert keys_of(keys)["panel"] == ("f10",)
    assert keys_of(keys)["model"] == ("f3", "m")


def test_keys_for_people() -> None:
    assert [key_text(key) for key in ("ctrl+r", "question_mark", "escape", "alt+up")] == ["ctrl+r", "?", "esc", "alt+↑"]
