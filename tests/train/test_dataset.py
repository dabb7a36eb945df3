"""Runs of positions, and the trimmed vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.train.dataset import RUN, Runs, choose_vocabulary, count_tokens, rows_of
from tests.train.made import N_HEADS, V, shard

LENGTHS = [70, 1, 33, 2, 32]
HELD_OUT = [False, True, False, False, False]


def _shards():
    return [shard(LENGTHS, [0, 0, 1, 2, 3]), shard([40], [4], seed=2)]


def test_every_position_that_has_a_next_token_is_in_one_run():
    shards = _shards()
    runs = Runs(shards, HELD_OUT, False, N_HEADS)
    assert runs.n_positions == 69 + 1 + 31 + 39
    seen = []
    for batch in runs.all(2, len(runs)):
        for row in range(len(batch.tokens)):
            seen += batch.tokens[row, :RUN][batch.valid[row, 1 : 1 + RUN]].tolist()
    ends = np.cumsum(LENGTHS)
    parts = [shards[0].tokens[end - n : end - 1] for n, end, prompt in zip(LENGTHS, ends, [0, 0, 1, 2, 3], strict=True)
             if prompt != 1]  # fmt: skip
    assert seen == np.concatenate([*parts, shards[1].tokens[:-1]]).tolist()
    assert Runs(shards, HELD_OUT, True, N_HEADS).n_positions == 32


def test_a_run_ends_with_its_answer():
    runs = Runs(_shards(), HELD_OUT, False, N_HEADS)
    batch = runs.batch(np.array([2, 3]))  # the last 6 tokens of the first answer; then the answer of two
    assert batch.valid.sum(axis=1).tolist() == [6, 2]
    assert not batch.hidden[0, 6:].any()
    assert not batch.tokens[1, 2:].any()


def test_epochs_are_shuffled_by_the_seed_and_can_be_entered_anywhere():
    runs = Runs([shard([64] * 10)], [False], False, N_HEADS)

    def tokens(*args: int) -> list[list[int]]:
        return [batch.tokens.ravel().tolist() for batch in runs.epoch(*args)]

    assert len(tokens(1, 0, 3)) == runs.n_batches(3) == 6
    assert tokens(1, 0, 3) == tokens(1, 0, 3)
    assert tokens(1, 0, 3)[4:] == tokens(1, 0, 3, 4)
    assert tokens(1, 0, 3) != tokens(1, 1, 3)
    assert tokens(1, 0, 3) != tokens(2, 0, 3)


def test_counts_leave_out_held_out_prompts():
    shards = _shards()
    counts = count_tokens(shards, HELD_OUT, V)
    assert counts.sum() == sum(LENGTHS) - 33 + 40


def test_the_vocabulary_is_the_most_frequent_tokens_and_the_end_tokens():
    counts = np.array([5, 0, 9, 9, 1, 0, 3])
    assert choose_vocabulary(counts, 3, [5]).tolist() == [2, 3, 5]
    assert choose_vocabulary(counts, 4, [2]).tolist() == [0, 2, 3, 6]
    assert choose_vocabulary(counts, 7, [5]).tolist() == list(range(7))
    assert choose_vocabulary(counts, 6, []).tolist() == [0, 1, 2, 3, 4, 6]
    by_count = choose_vocabulary(counts, 4, [5], by_count=True)
    assert by_count.tolist() == [2, 3, 0, 5]
    assert rows_of(np.array([5, 4, 2, 6, 0], dtype=np.int32), by_count).tolist() == [3, -1, 0, -1, 2]
    with pytest.raises(UsageError, match="8 tokens to draft are more than the 7"):
        choose_vocabulary(counts, 8, [])
