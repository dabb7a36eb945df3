"""Which vocabularies may draft for which, and what a refusal says."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import TokenType
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localspec.engine.model import Model
from localspec.engine.weightless import open_weightless
from localspec.errors import ModelError
from localspec.pairs.compare import check_pair, compare
from localspec.pairs.vocabulary import Kind, Vocabulary
from tests.pairs.vocabularies import Token, padding, slow_judge, vocabulary, words
from tests.tiny_models import N_VOCAB, TOKENS, write_tiny
from tests.with_model import smollm

TOKEN = st.tuples(st.sampled_from([b"a", b"b", b"\xc4\xa0a"]), st.sampled_from(list(Kind)))
IDS = st.integers(0, 7)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Vocabulary, Vocabulary]:
    """Two vocabularies that mostly agree, as unrelated ones would show little."""
    base = draw(st.lists(TOKEN, min_size=1, max_size=7))
    made = []
    for _ in range(2):
        tokens = list(base)
        for i, token in draw(st.dictionaries(IDS, TOKEN, max_size=2)).items():
            tokens[i % len(tokens)] = token
        tokens += draw(st.lists(st.sampled_from([*padding(9, 1), *words("c")]), max_size=2))
        ends = draw(st.one_of(st.just({1}), st.sets(IDS, max_size=2)))
        bos = draw(st.one_of(st.none(), st.integers(0, len(tokens) - 1)))
        made.append(vocabulary(tokens, (i for i in ends if i < len(tokens)), bos, draw(st.booleans())))
    return made[0], made[1]


@settings(max_examples=400, deadline=None)
@given(pairs())
@example((vocabulary(words("a", "b")), vocabulary(words("a"))))
def test_the_verdict_is_that_of_a_slow_judge(pair: tuple[Vocabulary, Vocabulary]) -> None:
    fit = compare(*pair)
    n_common, accepted = slow_judge(*pair)
    assert (fit.n_common, fit.reason is None) == (n_common, accepted)


@given(pairs())
def test_a_refusal_names_ids_that_do_differ(pair: tuple[Vocabulary, Vocabulary]) -> None:
    target, draft = pair
    fit = compare(target, draft)
    for i in fit.different:
        assert str(i) in str(fit.reason)
        known = i < len(draft)
        same_end = (i in target.ends) == (i in draft.ends)
        assert not (known and same_end and (target.texts[i], target.kinds[i]) == (draft.texts[i], draft.kinds[i]))


def test_tables_filled_up_to_different_sizes_fit() -> None:
    family = [*words("a", "b"), (b"<end>", Kind.SPECIAL)]
    small, large = vocabulary([*family, *padding(3, 2)], {2}), vocabulary([*family, *padding(3, 7)], {2})
    for target, draft in ((small, large), (large, small)):
        fit = compare(target, draft)
        assert (fit.n_common, fit.reason, fit.notes) == (5, None, ())


def test_later_tokens_of_the_target_are_left_out_and_noted() -> None:
    family = words("a", "b")
    target = vocabulary([*family, (b"<think>", Kind.SPECIAL), (b"</think>", Kind.SPECIAL)])
    fit = compare(target, vocabulary([*family, *padding(2, 4)]))
    assert (fit.n_common, fit.reason) == (2, None)
    assert fit.notes == ("it does not know 2 tokens of the target, from '<think>' (id 2) on",)


@pytest.mark.parametrize(
    ("target", "draft", "parts"),
    [
        (words("a", "b", "c"), words("a", "x", "y"), ["2 of 3 ids", "1 (target 'b', draft 'x')", "2 (target 'c'"]),
        (
            [*words("a"), (b"<tool>", Kind.SPECIAL)],
            words("a", "<tool>"),
            ["id 1 ('<tool>' is a special token in the target and text in the draft)"],
        ),
        # the ids after the hole are shared, and would be lost
        ([*words("a", "b", "c")], [*words("a"), *padding(1, 1), *words("c")], ["id 1 (target 'b', draft '[PAD1]')"]),
        (words("a"), padding(0, 1), ["no token in common"]),
    ],
)
def test_the_reason_is_told(target: list[Token], draft: list[Token], parts: list[str]) -> None:
    reason = compare(vocabulary(target), vocabulary(draft)).reason
    assert reason is not None
    for part in parts:
        assert part in reason


def test_other_end_tokens_are_named_with_the_side() -> None:
    tokens = [(text, Kind.SPECIAL) for text in (b"<eos>", b"<turn>", b"<s>")]
    fit = compare(vocabulary(tokens, {0, 1}), vocabulary(tokens, {0, 2}))
    assert fit.different == (1, 2)
    assert "'<turn>' (id 1) ends an answer of the target only" in str(fit.reason)
    assert "'<s>' (id 2) ends an answer of the draft model only" in str(fit.reason)


def test_another_habit_of_beginning_texts_is_a_note() -> None:
    tokens = [(b"<s>", Kind.SPECIAL), *words("a")]
    with_bos, without = vocabulary(tokens, bos=0, adds_bos=True), vocabulary(tokens, bos=0)
    assert compare(with_bos, with_bos).notes == compare(without, without).notes == ()
    assert "begin with '<s>', the target's do not" in compare(without, with_bos).notes[0]
    assert "do not begin with '<s>', the target's do" in compare(with_bos, without).notes[0]


def test_a_beginning_that_the_draft_model_lacks_is_refused() -> None:
    target = vocabulary([*words("a"), (b"<s>", Kind.SPECIAL)], bos=1, adds_bos=True)
    assert "texts begin with '<s>' (id 1)" in str(compare(target, vocabulary(words("a"))).reason)


# --- files ---


def test_files_of_one_family_fit_whatever_their_weights(tmp_path: Path) -> None:
    """Other weights, layers and table sizes, one of them filled up in the way of older converters."""
    target = write_tiny(tmp_path / "target.gguf")
    padded = {N_VOCAB + 1: (f"[PAD{N_VOCAB + 1}]", TokenType.USER_DEFINED)}
    draft = write_tiny(tmp_path / "draft.gguf", "gemma3", seed=2, n_vocab=N_VOCAB + 32, tokens=padded)
    for a, b in ((target, draft), (draft, target)):
        with Model.load(a) as ours, Model.load(b) as theirs:
            assert check_pair(ours, theirs) == N_VOCAB


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"tokens": {265: ("tree", TokenType.NORMAL)}}, "id 265 (target '\u2581node', draft 'tree')"),
        ({"tokens": {266: (TOKENS[266], TokenType.CONTROL)}}, "is text in the target and a special token in the draft"),
        ({"eos": 3}, "'<|im_start|>' (id 3) ends an answer of the draft model only"),
    ],
)
def test_a_file_of_another_family_is_refused_by_id(tmp_path: Path, other: dict, reason: str) -> None:
    target, draft = write_tiny(tmp_path / "target.gguf"), write_tiny(tmp_path / "draft.gguf", **other)
    with open_weightless(target) as ours, open_weightless(draft) as theirs, pytest.raises(ModelError) as caught:
        check_pair(ours, theirs)
    assert caught.value.message.startswith("draft.gguf cannot draft for target.gguf: ")
    assert reason in caught.value.message
    assert "localspec drafts" in str(caught.value.hint)


@pytest.mark.parametrize(("kind", "reason"), [("mamba", "step back"), ("lfm2", "step back"), ("qwen2vl", "M-RoPE")])
def test_what_cannot_hold_a_tree_neither_drafts_nor_verifies(tmp_path: Path, kind: str, reason: str) -> None:
    paths = write_tiny(tmp_path / "llama.gguf"), write_tiny(tmp_path / "other.gguf", kind)
    for a, b in (paths, paths[::-1]):
        with open_weightless(a) as ours, open_weightless(b) as theirs, pytest.raises(ModelError, match=reason):
            check_pair(ours, theirs)


def test_a_file_tells_the_same_without_its_weights(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    with Model.load(path) as model:
        loaded, read = Vocabulary.of(model), Vocabulary.read(path)
    assert (read.texts, read.kinds.tolist()) == (loaded.texts, loaded.kinds.tolist())
    assert (read.ends, read.bos, read.adds_bos) == (loaded.ends, loaded.bos, loaded.adds_bos)
    kinds = [Kind(kind) for kind in read.kinds]
    assert kinds[0] == kinds[4] == Kind.SPECIAL
    assert (kinds[5], kinds[261], kinds[N_VOCAB - 1]) == (Kind.BYTE, Kind.TEXT, Kind.UNUSED)


@pytest.mark.model
def test_another_model_is_refused_with_the_first_ids(tmp_path: Path) -> None:
    with open_weightless(smollm()) as target, open_weightless(write_tiny(tmp_path / "tiny.gguf")) as draft:
        assert check_pair(target, target) == target.n_vocab
        with pytest.raises(ModelError, match="BPE"):
            check_pair(target, draft)
