"""Names of keys: what people write in a config file, and what Textual calls it."""

from __future__ import annotations

import difflib

from textual.binding import Binding
from textual.keys import REPLACED_KEYS, Keys, key_to_character

MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")  # the order is Textual's
OTHER_MODIFIERS = {"control": "ctrl", "option": "alt", "opt": "alt", "cmd": "super", "command": "super", "win": "super"}
OTHER_NAMES = {
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "page_up": "pageup",
    "pgdn": "pagedown",
    "page_down": "pagedown",
    "spacebar": "space",
}
#: what terminals send for these is the same as for another key
SAME = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape", "ctrl+h": "backspace"}
#: keys without a character that a text field needs for itself
EDITING = frozenset(
    ("enter", "tab", "backspace", "delete", "escape", "left", "right", "up", "down", "home", "end", "insert")
)
#: named keys, without modifiers
NAMED = frozenset(key.value for key in Keys if key.value.isalnum()) - {"return"} | {"space"}


def key_name(written: str) -> tuple[str | None, str | None]:
    """Textual's name of a key as a person wrote it, or None and the reason why there is no such key."""
    text = written.strip()
    # "+" itself is a key, and the sign between the others
    *modifiers, last = [*text[:-1].rstrip("+").split("+"), "+"] if text.endswith("+") and text else text.split("+")
    modifiers = [OTHER_MODIFIERS.get(name.strip().lower(), name.strip().lower()) for name in modifiers if name]
    for name in modifiers:
        if name not in MODIFIERS:
            return None, f"{written!r} is no key: {name!r} is none of {', '.join(MODIFIERS)}"
    last = last.strip()
    base = _base_name(last.lower() if modifiers and len(last) == 1 else last)
    if base is None:
        near = difflib.get_close_matches(last.lower(), sorted(NAMED), n=1)
        return None, f"{written!r} is no key" + (
            f"; did you mean {near[0]}?" if near else "; for example ctrl+g, f5, ?"
        )
    if modifiers == ["shift"] and len(base) == 1 and base.isalpha():
        return base.upper(), None  # a terminal sends the capital letter
    key = "+".join([*sorted(set(modifiers)), base])
    return SAME.get(key, key), None


def types_or_moves(key: str) -> bool:
    """Whether a text field needs this key: it has a character, or moves the cursor or deletes."""
    *modifiers, base = key.split("+")
    if set(modifiers) - {"shift"}:
        return False
    return base in EDITING or _character(base) is not None


def _base_name(text: str) -> str | None:
    if len(text) == 1:
        return _name_of(text) if text.isprintable() else None
    name = OTHER_NAMES.get(text.lower(), text.lower())
    if name in NAMED:
        return name
    character = _character(name)
    return None if character is None else _name_of(character)


def _character(base: str) -> str | None:
    """What the key types, None where that is nothing."""
    return key_to_character(REPLACED_KEYS.get(base, base))


def _name_of(character: str) -> str:
    # a binding takes characters and keeps names; in it a comma stands between keys
    return "comma" if character == "," else next(iter(Binding.make_bindings([Binding(character, "")]))).key
