"""Rank logs: what is accepted, what is refused, and that a file gives back what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.entmtp.ranks import MISSING, VERSION, RankedAnswer, RankLog
from localspec.errors import UsageError
from localspec.static_tree import MAX_RANK
from tests.entmtp.logs import answer, random_log


def contents(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        return dict(archive)


def with_meta(path: Path, **changes: Any) -> None:
    """Write the log at `path` again with other metadata."""
    arrays = contents(path)
    meta = {**json.loads(arrays["meta"].tobytes()), **changes}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)


def test_large_ranks_are_capped_and_missing_ones_stay() -> None:
    ranks = RankedAnswer("a", "chat", np.array([[40_000, MISSING], [0, MISSING], [-1, -1]]), [1, 1, 1], np.ones((3, 2)))
    assert ranks.ranks.tolist() == [[MAX_RANK, MISSING], [0, MISSING], [MISSING, MISSING]]
    assert ranks.ranks.dtype == np.int16


def test_a_probability_a_little_above_one_is_one() -> None:
    made = RankedAnswer("a", "chat", [[-1]], [1.000001], [[0.5]])
    assert made.p_base.tolist() == [1.0]


@pytest.mark.parametrize(
    ("ranks", "p_base", "q", "reason"),
    [
        ([[0.5]], [1], [[1]], "not integers"),
        ([0, 1], [1, 1], [[1], [1]], "not integers"),
        ([], [], [], "not integers"),
        ([[0], [0, 1]], [1, 1], [[1], [1]], "not an array"),
        ([["x"]], [1], [[1]], "not integers"),
        ([[-2]], [1], [[1]], "rank -2"),
        ([[3]], [1], [[1]], "ends after 1 tokens, yet head 0 has a rank at position 0"),
        ([[0, 3], [-1, -1]], [1, 1], [[1, 1], [1, 1]], "yet head 1 has a rank at position 0"),
        ([[-1]], [1, 1], [[1]], r"p_base .* shape \[2\], not \[1\]"),
        ([[-1]], [1], [[1, 1]], "q .* shape"),
        ([[-1]], [1.1], [[1]], "p_base .* between 0 and 1"),
        ([[-1]], [1], [[-0.1]], "q .* between 0 and 1"),
        ([[-1]], [np.inf], [[1]], "between 0 and 1"),
        ([[-1]], ["x"], [[1]], "not an array of numbers"),
    ],
)
def test_a_bad_answer_is_refused_by_name(ranks: Any, p_base: Any, q: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"answer bad\b.*{reason}|{reason}.*answer bad\b|{reason}") as error:
        RankedAnswer("bad", "chat", ranks, p_base, q)
    assert "bad" in error.value.message


def test_answers_of_a_log_fit_together() -> None:
    with pytest.raises(UsageError, match="at least one answer"):
        RankLog(())
    with pytest.raises(UsageError, match="answer b was seen by 1 heads, others by 2"):
        RankLog((answer("a", [[0, 0]]), answer("b", [[0]])))
    with pytest.raises(UsageError, match=r"two answers .* id a"):
        RankLog((answer("a", [[0]]), answer("a", [[0]])))


def test_arrays_of_a_log_are_those_of_its_answers() -> None:
    log = random_log(1)
    assert len(log) == sum(len(a) for a in log.answers) == len(log.ranks)
    for a, (start, end) in zip(log.answers, log.bounds, strict=True):
        assert np.array_equal(log.ranks[start:end], a.ranks)
    assert not log.ranks.flags.writeable and not log.answers[0].q.flags.writeable


def test_scores_are_products_along_the_greedy_path() -> None:
    log = random_log(2)
    for depth in (0, 1, 3, None):
        scores = log.scores(depth).tolist()
        expected = []
        for a in log.answers:
            for p, q in zip(a.p_base.tolist(), a.q.tolist(), strict=True):
                for factor in q[:depth]:
                    p *= factor
                expected.append(p)
        assert scores == pytest.approx(expected)
    with pytest.raises(UsageError, match="4 heads"):
        log.scores(4)


def test_an_unknown_factor_makes_the_score_zero_if_it_counts() -> None:
    q = [[0.5, np.nan], [0.5, 0.5]]
    log = RankLog((RankedAnswer("a", "chat", [[0, -1], [-1, -1]], [0.5, np.nan], q),))
    assert log.scores(1).tolist() == [0.25, 0.0]
    assert log.scores(2).tolist() == [0.0, 0.0]


def test_parts_of_a_log() -> None:
    log = random_log(3)
    assert log.tasks == ("chat", "code")
    assert [a.id for a in log.of_task("code").answers] == ["a1", "a3"]
    assert [a.id for a in log.subset([2, 0]).answers] == ["a2", "a0"]
    with pytest.raises(UsageError, match=r"no answers of task 'math'.*it has chat, code"):
        log.of_task("math")


def test_a_file_gives_back_the_log(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ranks.npz"
    log = RankLog(random_log(4).answers, {"model": "ff00", "heads": "hydra ✓", "date": "2026-01-01"})
    q = log.answers[0].q.copy()
    q[0, 0] = np.nan
    odd = RankedAnswer("ends with \0", "", log.answers[0].ranks, log.answers[0].p_base, q)
    log = RankLog((*log.answers, odd), log.header)
    log.save(path)
    again = RankLog.load(path)
    assert again.header == log.header
    for a, b in zip(log.answers, again.answers, strict=True):
        assert (a.id, a.task) == (b.id, b.task)
        for name in ("ranks", "p_base", "q"):
            x, y = getattr(a, name), getattr(b, name)
            assert x.dtype == y.dtype and np.array_equal(x, y, equal_nan=name != "ranks")
    assert [p.name for p in path.parent.iterdir()] == ["ranks.npz"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ranks.npz"
    random_log(5).save(path)
    old = path.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(UsageError, match=r"ranks.npz cannot be written: No space left"):
        random_log(6).save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["ranks.npz"]


def test_a_header_that_is_not_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="header of the rank log"):
        RankLog(random_log(5).answers, {"model": object()}).save(tmp_path / "ranks.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 and no more", b"\x93NUMPY\x01\x00junk", b"\x80\x04N."])
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"other.npz"):
        RankLog.load(path)


def test_a_missing_file_and_a_single_array_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone.npz cannot be read: No such file"):
        RankLog.load(tmp_path / "gone.npz")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UsageError, match=r"one.npz is not a rank log"):
        RankLog.load(tmp_path / "one.npz")


def test_a_file_cut_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.npz"
    random_log(7).save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(UsageError, match=r"cut.npz"):
            RankLog.load(path)


def test_a_damaged_byte_never_passes_unseen(tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    log = random_log(8)
    log.save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 61):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            again = RankLog.load(path)
        except UsageError as error:
            assert "damaged.npz" in error.message
        else:  # a time stamp, for one, may be anything
            assert np.array_equal(again.ranks, log.ranks)
            assert [a.id for a in again.answers] == [a.id for a in log.answers]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "other"}, "is not a rank log"),
        ({"version": VERSION + 1}, f"has version {VERSION + 1}, not {VERSION}"),
        ({"header": 3}, "has no header"),
        ({"answers": {}}, "no list of answers"),
        ({"answers": []}, "50 positions|0 positions"),
        ({"answers": [["a", "chat"]]}, "broken"),
        ({"answers": [["a", "chat", 0]]}, "answer 1 has no id"),
        ({"answers": [["a", "chat", -50]]}, "answer 1 has no id"),
        ({"answers": [["a", "chat", "50"]]}, "answer 1 has no id"),
        ({"answers": [["a", "chat", 49]]}, "answer a ends after 49|49 positions"),
        ({"answers": [["a", "chat", 500]]}, "500 positions"),
    ],
)
def test_bad_metadata_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = tmp_path / "meta.npz"
    random_log(9, lengths=(50,)).save(path)
    with_meta(path, **changes)
    with pytest.raises(UsageError, match=reason) as error:
        RankLog.load(path)
    assert "meta.npz" in error.value.message


def test_arrays_that_lack_or_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    random_log(10, lengths=(50,)).save(path)
    arrays = contents(path)
    wrong: list[dict[str, Any]] = [
        {name: array for name, array in arrays.items() if name != "q"},
        {**arrays, "q": arrays["q"][:-1]},
        {**arrays, "p_base": np.append(arrays["p_base"], 1)},
        {**arrays, "p_base": np.float32(1)},
        {**arrays, "ranks": arrays["ranks"].astype(np.float32)},
        {**arrays, "ranks": arrays["ranks"][:, 0]},
    ]
    for content in wrong:
        with path.open("wb") as file:
            np.savez(file, **content)
        with pytest.raises(UsageError, match=r"arrays.npz"):
            RankLog.load(path)
