"""Conversations on disk: one JSON file each in a folder of their own, which only their owner can read."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.paths import atomic_write_text, data_dir
from localspec.tui.checked import Fields
from localspec.tui.conversation import Conversation, check_version, new_id
from localspec.tui.transcript import from_markdown, to_markdown

log = logging.getLogger(__name__)

#: the first bytes of a file, enough for what a list shows
_HEAD = 2048
_ABOUT = '"about": '
_MARKDOWN = (".md", ".markdown")


@dataclass(frozen=True)
class Entry:
    """A conversation as a list shows it. Times are UTC in ISO 8601."""

    id: str
    title: str
    created: str
    updated: str
    model: str | None
    n_messages: int


def conversations_dir() -> Path:
    """Where conversations are kept. May not exist yet."""
    return data_dir() / "conversations"


class Store:
    """The conversations in `folder`, which is made with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, conversation: Conversation) -> None:
        """Keep a conversation as it is now: at every moment the disk has this or the one before, whole.

        One without messages is not kept. Raises `UsageError` when it cannot be written.
        """
        if not conversation.messages:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write_text(self._path(conversation.id), conversation.to_json())
        except OSError as error:
            raise UsageError(
                f"the conversation cannot be saved in {self.folder}: {error.strerror or error}",
                "save it elsewhere, or make room",
            ) from error

    def entries(self) -> tuple[list[Entry], list[str]]:
        """What is kept, the latest first, and a line for every file that cannot be read; those are left as they are."""
        found: list[Entry] = []
        problems: list[str] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(_entry(path))
            except LocalspecError as error:
                problems.append(error.message)
        for line in problems:
            log.warning("%s", line)
        return sorted(found, key=lambda entry: entry.updated, reverse=True), problems

    def load(self, id: str) -> Conversation:
        """The conversation of this id. Raises `UsageError`."""
        return _load_json(self._path(id))

    def rename(self, id: str, title: str) -> None:
        """Give a kept conversation a title; an empty one goes back to the first question. Raises `UsageError`."""
        conversation = self.load(id)
        conversation.rename(title)
        self.save(conversation)

    def delete(self, id: str) -> None:
        """Delete a kept conversation for good; none of this id is fine. Raises `UsageError`."""
        try:
            self._path(id).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{self._path(id)} cannot be deleted: {error.strerror}") from error

    def import_file(self, path: Path) -> Conversation:
        """Read a file that `export` wrote, and keep it as a conversation of its own. Raises `UsageError`."""
        if path.suffix.lower() not in _MARKDOWN:
            conversation = _load_json(path)
        else:
            try:
                conversation = from_markdown(_read(path))
            except UsageError as error:
                raise UsageError(f"{path}: {error.message}", error.hint) from error
        if self._path(conversation.id).exists():  # which may have gone on since
            conversation.id = new_id()
        self.save(conversation)
        return conversation

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}.json"


def export(conversation: Conversation, path: Path, *, overwrite: bool = False) -> None:
    """Write a conversation to a file of the person's own: Markdown for `.md`, JSON for `.json`.

    Raises `UsageError` for another ending, for a file that is there unless `overwrite`, and when it cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in (*_MARKDOWN, ".json"):
        raise UsageError(f"{path.name} ends with neither .md nor .json", "these are the kinds of files there are")
    path = path.expanduser()
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "give a file in it")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} is there already", "choose another name, or overwrite it")
    try:
        atomic_write_text(path, conversation.to_json() if ending == ".json" else to_markdown(conversation))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", "choose another folder") from error


def _read(path: Path) -> str:
    try:
        # as bytes: text mode would turn ends of lines that a message has
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read: it is not UTF-8 text") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _load_json(path: Path) -> Conversation:
    text = _read(path)
    try:
        return Conversation.from_json(text)
    except UsageError as error:
        raise UsageError(f"{path} is damaged or no conversation: {error.message}", error.hint) from error


def _entry(path: Path) -> Entry:
    """What a list shows of a file; of one that this program wrote, only the beginning is read."""
    fields = Fields(_about(path) or _load_json(path).about(), f"{path}: about")
    return Entry(
        id=path.stem,
        title=fields.text("title"),
        created=fields.time("created"),
        updated=fields.time("updated"),
        model=fields.optional_text("model"),
        n_messages=fields.count("n_messages") or 0,
    )


def _about(path: Path) -> object:
    """The object `about` at the beginning of a file; None where it is not found there, or the file has no end."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
            file.seek(-2, os.SEEK_END)
            if file.read() != b"}\n":
                return None
        start = head.index(_ABOUT)
        before = Fields(json.loads(head[:start].rstrip(" \n,") + "}"), str(path))
        check_version(before.text("format"), before.count("version"))
        return json.JSONDecoder().raw_decode(head, start + len(_ABOUT))[0]
    except (OSError, ValueError, RecursionError, UsageError):
        return None
