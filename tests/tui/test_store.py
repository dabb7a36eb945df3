"""The store of conversations: nothing answered is lost, and nothing damaged is deleted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.tui.conversation import Conversation, Message
from localspec.tui.store import Store, export


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "conversations")


def talk(question: str = "Why?", updated: str = "2026-01-31T12:00:00+00:00", **settings: object) -> Conversation:
    conversation = Conversation(model="some-model", **settings)  # type: ignore[arg-type]
    conversation.ask(question)
    conversation.answered(Message("assistant", "Because."))
    conversation.updated = updated
    return conversation


def test_the_latest_conversation_is_listed_first(store: Store) -> None:
    for day in (3, 1, 2):
        store.save(talk(f"question {day}", f"2026-01-0{day}T12:00:00+00:00"))
    entries, problems = store.entries()
    assert [entry.title for entry in entries] == ["question 3", "question 2", "question 1"]
    assert (entries[0].model, entries[0].n_messages, problems) == ("some-model", 2, [])
    assert store.load(entries[1].id).messages[1].content == "Because."


def test_an_empty_store_has_no_entries_and_keeps_no_empty_conversations(store: Store) -> None:
    store.save(Conversation())
    assert store.entries() == ([], []) and not store.folder.exists()


def test_a_long_system_message_does_not_hide_a_conversation(store: Store) -> None:
    store.save(talk("é" * 5000, system="x" * 10_000))
    [entry], _ = store.entries()
    assert entry.title == "é" * 59 + "…"


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": "else"}\n', b"\xff\xfe", b"[1, 2]"])
def test_a_damaged_file_is_named_and_left_alone(store: Store, content: bytes) -> None:
    store.save(talk())
    damaged = store.folder / "damaged.json"
    damaged.write_bytes(content)
    entries, problems = store.entries()
    assert len(entries) == 1 and len(problems) == 1 and str(damaged) in problems[0]
    assert damaged.read_bytes() == content


def test_a_file_that_lost_its_end_is_damaged(store: Store) -> None:
    conversation = talk()
    store.save(conversation)
    path = store.folder / f"{conversation.id}.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert store.entries()[0] == [] and str(path) in store.entries()[1][0]
    with pytest.raises(UsageError, match="damaged"):
        store.load(conversation.id)


def test_a_save_that_fails_leaves_what_was_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talk()
    store.save(conversation)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    conversation.ask("And then?")
    with pytest.raises(UsageError, match="No space left on device"):
        store.save(conversation)
    assert len(store.load(conversation.id).messages) == 2
    assert len(list(store.folder.iterdir())) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_only_the_owner_can_read_conversations(store: Store) -> None:
    store.save(talk())
    [path] = store.folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_rename_and_delete(store: Store) -> None:
    conversation = talk()
    store.save(conversation)
    store.rename(conversation.id, "Reasons")
    assert [entry.title for entry in store.entries()[0]] == ["Reasons"]
    store.delete(conversation.id)
    store.delete(conversation.id)
    assert store.entries() == ([], [])


@pytest.mark.parametrize("name", ["talk.md", "talk.json"])
def test_what_was_exported_is_imported_as_a_conversation_of_its_own(store: Store, tmp_path: Path, name: str) -> None:
    conversation = talk("Why\r\nnot?")
    store.save(conversation)
    export(conversation, tmp_path / name)
    with pytest.raises(UsageError, match="is there already"):
        export(conversation, tmp_path / name)
    imported = store.import_file(tmp_path / name)
    assert imported.messages == conversation.messages and imported.id != conversation.id
    assert len(store.entries()[0]) == 2


def test_files_of_other_kinds_are_refused_by_name(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"talk\.txt ends with neither"):
        export(talk(), tmp_path / "talk.txt")
    (tmp_path / "notes.md").write_text("# Notes")
    with pytest.raises(UsageError, match=r"notes\.md: this Markdown is no conversation"):
        store.import_file(tmp_path / "notes.md")
    with pytest.raises(UsageError, match=r"gone\.json cannot be read: No such file"):
        store.import_file(tmp_path / "gone.json")
