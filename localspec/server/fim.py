"""Prompts for writing between two texts ("fill in the middle")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.serving.api import Engine, FimTokens

#: what stands between other texts for a model that has no tokens for files
_SNIPPET = "\n\n--- snippet ---\n\n"
_PROJECT, _FILE = "myproject\n", "filename\n"


@dataclass(frozen=True, slots=True)
class Extra:
    """Another text of the project."""

    text: str
    filename: str = "tmp"


def tokens(
    engine: Engine,
    prefix: str | Sequence[int],
    suffix: str | Sequence[int],
    *,
    begun: str = "",
    extra: Sequence[Extra] = (),
    room: int = 0,
) -> list[int]:
    """The prompt for the text between `prefix` and `suffix`; `begun` is more of the prefix.

    Texts of `extra` come before, as many of the last ones as leave `room` tokens for the answer. Raises `UsageError`
    for a model that was not made for it.
    """
    fim = engine.fim()
    if fim is None:
        raise UsageError(
            f"the model {engine.facts.name} does not support insert: it has no tokens for it",
            "use a code model that was trained to fill in the middle",
        )
    before, after = _plain(engine, prefix), _plain(engine, suffix)
    core = [fim.prefix, *before, *_plain(engine, begun), fim.suffix, *after, fim.middle]
    first = engine.tokenize("", add_special=True)[:1]
    more = _extra(engine, fim, extra, engine.facts.n_ctx - len(first) - len(core) - room)
    return [*first, *more, *core]


def _plain(engine: Engine, text: str | Sequence[int]) -> list[int]:
    """Tokens of a text in which nothing is special: it is somebody's file."""
    if not isinstance(text, str):
        return list(text)
    return engine.tokenize(text, add_special=False, parse_special=False) if text else []


def _extra(engine: Engine, fim: FimTokens, extra: Sequence[Extra], room: int) -> list[int]:
    """Other files before the one that is written, whole ones that fit, the last first."""
    head = [] if fim.repo is None else [fim.repo, *_plain(engine, _PROJECT)]
    tail = [] if fim.file is None else [fim.file, *_plain(engine, _FILE)]
    left = room - len(head) - len(tail)
    chunks: list[list[int]] = []
    for each in reversed(extra):
        chunk = _chunk(engine, fim, each)
        left -= len(chunk)
        if left < 0:
            break
        chunks.insert(0, chunk)
    return [*head, *(token for chunk in chunks for token in chunk), *tail] if chunks else []


def _chunk(engine: Engine, fim: FimTokens, extra: Extra) -> list[int]:
    if fim.file is None:
        return _plain(engine, _SNIPPET + extra.text)
    return [fim.file, *_plain(engine, f"{extra.filename}\n{extra.text}")]
