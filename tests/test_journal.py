"""The file that long work writes its results to, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.journal import Journal, read_header

HEADER = {"format": "work", "options": {"n": 1, "temperature": 0.0}}


def test_what_was_written_is_there_but_for_a_broken_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, HEADER) as journal:
        journal.append({"a": 1})
        journal.append({"b": 2})
    path.write_text(path.read_text()[:-4])
    with Journal(path, HEADER) as journal:
        assert journal.entries == [{"a": 1}]
        journal.append({"c": 3})
    with Journal(path, dict(reversed(HEADER.items()))) as journal:
        assert journal.entries == [{"a": 1}, {"c": 3}]
    assert read_header(path) == HEADER


def test_other_work_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('{"format": "another"}\n{"a": 1}\n')
    with Journal(path, HEADER) as journal:
        assert not journal.entries


@pytest.mark.parametrize(("content", "header"), [(b"", None), (b"a text\n", {}), (b"\xff\n", {}), (b"[1]\n{}\n", {})])
def test_a_header_is_read_without_changing_the_file(tmp_path: Path, content: bytes, header: object) -> None:
    path = tmp_path / "journal"
    assert read_header(path) is None
    path.write_bytes(content)
    assert read_header(path) == header
    assert path.read_bytes() == content


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_header(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        Journal(tmp_path, HEADER)
