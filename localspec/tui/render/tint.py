"""The answer with its tokens marked by where they came from. The text itself is not changed: no glyphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from rich.text import Text

from localspec.events import StepEvent
from localspec.text import without_controls
from localspec.tui.render import styles

#: a draft that the target agreed with, its own token after drafts, a draft that it did not agree with, and a token of
#: a step without drafts
Kind = Literal["accepted", "bonus", "forgiven", "plain"]

_STYLES: dict[Kind, str] = {
    "accepted": styles.TINT_ACCEPTED,
    "bonus": styles.TINT_BONUS,
    "forgiven": styles.TINT_FORGIVEN,
}


def kinds(event: StepEvent) -> list[Kind]:
    """Where each of a step's tokens came from."""
    own: Kind = "bonus" if len(event.tree_tokens) > 1 else "plain"
    found: list[Kind] = ["accepted" if i < len(event.path) else own for i in range(len(event.tokens))]
    for i in event.forgiven:
        found[i] = "forgiven"
    return found


def tokens(event: StepEvent, piece: Callable[[int], str]) -> list[tuple[str, Kind]]:
    """A step's text in pieces with their kinds, for `tinted`. The pieces make up `event.text`: where it does not fall
    into the texts of its tokens, as with characters of several tokens, it is one piece."""
    if not event.text:
        return []
    of = kinds(event)
    pieces = [piece(token) for token in event.tokens]
    if "".join(pieces) == event.text:
        return list(zip(pieces, of, strict=True))
    return [(event.text, of[0])]


def tinted(tokens: Sequence[tuple[str, Kind]]) -> Text:
    """Texts, each in the style of its kind; control characters are left out."""
    text = Text()
    for piece, kind in tokens:
        text.append(without_controls(piece), _STYLES.get(kind))
    return text
