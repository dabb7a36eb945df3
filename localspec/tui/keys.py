"""What can be done in the chat, and with which keys: one table for bindings, footer, help and command palette.

Keys have Textual's names ("ctrl+r", "f1", "question_mark"), and common ways to write them are understood ("Ctrl+R",
"?", "esc"). A key that types or moves the cursor (a letter, space, left) works while the prompt does not have the
focus; all others work at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding
from textual.keys import format_key

from localspec.tui.key_names import key_name, types_or_moves

Group = Literal["Writing", "Answers", "Conversations", "Engine", "Panel", "View", "Application"]
#: "prompt": the key means this only while the prompt has the focus
Scope = Literal["prompt", "anywhere"]

Keys = Mapping[str, Sequence[str]]

#: keys that have a fixed meaning, and which
RESERVED = {
    "ctrl+c": "copies what is selected, and twice in a row it quits",
    "ctrl+p": "opens the command palette",
    "tab": "moves the focus",
    "shift+tab": "moves the focus back",
}


@dataclass(frozen=True)
class Action:
    """Something the chat does: `action_<id>` of the app. `keys` are the default ones, the first is what the footer
    shows if it is `shown` there; `short` is for the footer, `text` a sentence for help and palette."""

    id: str
    keys: tuple[str, ...]
    short: str
    text: str
    group: Group
    shown: bool = False
    scope: Scope = "anywhere"


ACTIONS: tuple[Action, ...] = (
    Action("send", ("enter",), "Send", "Send the question", "Writing", shown=True, scope="prompt"),
    Action(
        "newline", ("ctrl+j", "shift+enter", "alt+enter"), "New line", "Begin a new line", "Writing", scope="prompt"
    ),
    Action("focus_prompt", ("i",), "Write", "Go to the prompt", "Writing"),
    Action("edit_last", ("alt+up", "e"), "Edit", "Edit the last question and ask it again", "Writing"),
    Action("cancel", ("escape",), "Stop", "Stop the answer; what was written is kept", "Answers", shown=True),
    Action("regenerate", ("ctrl+r", "r"), "Again", "Write the last answer anew", "Answers", shown=True),
    Action("copy_answer", ("ctrl+y", "y"), "Copy", "Copy the last answer", "Answers"),
    Action("copy_code", ("alt+c", "c"), "Copy code", "Copy the last block of code", "Answers"),
    Action("tint", ("f8", "s"), "Tint", "Tint tokens by where they come from: drafted, bonus, forgiven", "Answers"),
    Action("clear", ("ctrl+l", "ctrl+n"), "New", "Begin a new conversation", "Conversations"),
    Action("open_conversation", ("ctrl+o",), "Open", "Open or tidy saved conversations", "Conversations"),
    Action("save_as", ("ctrl+s",), "Save", "Save the conversation to a file", "Conversations"),
    Action("model", ("f3", "m"), "Model", "Choose the model", "Engine"),
    Action("method", ("f4",), "Method", "Choose how to speculate", "Engine"),
    Action("sampling", ("f5",), "Sampling", "Set temperature, seed and the like", "Engine"),
    Action("system", ("f6",), "System", "Write the system message", "Engine"),
    Action("panel", ("ctrl+t", "t"), "Panel", "Show no figures, a line, or the panel", "Panel", shown=True),
    Action("pause", ("space",), "Pause", "Hold the panel still, or go on", "Panel"),
    Action("step_back", ("left",), "Step back", "Look at the step before", "Panel"),
    Action("step_on", ("right",), "Step on", "Look at the step after", "Panel"),
    Action("scroll_up", ("pageup", "k"), "Up", "Scroll the conversation up", "View"),
    Action("scroll_down", ("pagedown", "j"), "Down", "Scroll the conversation down", "View"),
    Action("theme", (), "Theme", "Choose the colours", "View"),
    Action("mouse", ("f7",), "Mouse", "Leave the mouse to the terminal, or take it back", "View"),
    Action("help", ("f1", "question_mark"), "Help", "Explain keys, marks and words", "Application", shown=True),
    Action("settings", ("f2",), "Settings", "Change colours, panel and mouse", "Application"),
    Action("logs", ("f9",), "Logs", "Read the log", "Application"),
    Action("quit", ("ctrl+q",), "Quit", "Leave localspec", "Application"),
)

BY_ID = {action.id: action for action in ACTIONS}


def bindings(keys: Keys, scope: Scope | None = None) -> list[Binding]:
    """The bindings of all actions, or of those with one scope, with `keys` in place of defaults.

    What `problems` names is left out. The id of a binding is that of its action. Keys that work whatever has the focus
    are priority bindings: refuse their actions in `check_action` while another screen is on top. Those of the prompt
    are none, since they would go before what was typed just before them: the prompt has to look for them itself.
    """
    made: list[Binding] = []
    for action in ACTIONS:
        if scope not in (None, action.scope):
            continue
        for i, key in enumerate(keys_of(keys)[action.id]):
            made.append(
                Binding(
                    key,
                    action.id,
                    action.short,
                    show=action.shown and i == 0,
                    tooltip=action.text,
                    priority=action.scope == "anywhere" and not types_or_moves(key),
                    id=action.id,
                )
            )
    return made


def problems(keys: Keys) -> list[str]:
    """What is wrong with keys that a person chose: one line each, with the way out."""
    return _settle(keys)[1]


def keys_of(keys: Keys) -> dict[str, tuple[str, ...]]:
    """The keys of every action by its id, with `keys` in place of defaults as far as they can be used."""
    return _settle(keys)[0]


def key_text(key: str) -> str:
    """A key for people: "ctrl+r", "?", "esc"."""
    *modifiers, last = key.split("+")
    names = {"enter": "enter", "escape": "esc", "pageup": "page up", "pagedown": "page down"}
    return "+".join([*modifiers, names.get(last) or format_key(last)])


def _settle(keys: Keys) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The keys in use by action, and what is wrong with `keys`."""
    wrong: list[str] = []
    chosen = _chosen(keys, wrong)
    owners: dict[tuple[str, Scope], str] = {}
    settled: dict[str, tuple[str, ...]] = {}
    # a key that a person chose goes before one that is another action's by default
    for action in sorted(ACTIONS, key=lambda action: action.id not in chosen):
        wanted = chosen.get(action.id, action.keys)
        kept = []
        for key in wanted:
            owner = _owner(owners, key, action.scope)
            if owner is None:
                owners[key, action.scope] = action.id
                kept.append(key)
            elif action.id in chosen and owner != action.id:
                wrong.append(f"{key_text(key)} is given to {owner} and to {action.id}: it stays with {owner}")
        if wanted and not kept and action.id not in chosen:
            taker = _owner(owners, wanted[0], action.scope)
            wrong.append(
                f"{action.id} has no key left, since {key_text(wanted[0])} went to {taker}: "
                f"give it another, or write {action.id} = []"
            )
        settled[action.id] = tuple(kept)
    return settled, wrong


def _owner(owners: Mapping[tuple[str, Scope], str], key: str, scope: Scope) -> str | None:
    """Which action has a key already. A key that types means one thing in the prompt and may mean another outside."""
    if types_or_moves(key):
        return owners.get((key, scope))
    return owners.get((key, "prompt")) or owners.get((key, "anywhere"))


def _chosen(keys: Keys, wrong: list[str]) -> dict[str, tuple[str, ...]]:
    """The keys in `keys` that can be used, by action; the others are told in `wrong`. An action none of whose keys can
    be used is left out, and keeps its defaults."""
    chosen: dict[str, tuple[str, ...]] = {}
    for name, written in keys.items():
        if name not in BY_ID:
            wrong.append(f"there is no action {name!r}{_nearest(name)}")
            continue
        good: list[str] = []
        for text in written:
            key, reason = key_name(text)
            if key in RESERVED:
                reason = f"{key_text(key)} {RESERVED[key]}"
            elif key is not None and BY_ID[name].scope == "prompt" and len(key) == 1:
                reason = f"{text!r} is needed for writing"
            if reason is not None:
                wrong.append(f"{name}: {reason}")
            elif key is not None and key not in good:
                good.append(key)
        if good or not written:
            chosen[name] = tuple(good)
    return chosen


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, BY_ID, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(BY_ID)}"
