"""The prompts that training text is made from."""

from __future__ import annotations

import re

import pytest

from localspec.bench.prompts import own_prompts
from localspec.errors import UsageError
from localspec.train import prompts


def _grams(text: str, n: int = 8) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def test_there_are_many_and_some_are_held_out():
    texts = prompts.training_prompts()
    assert len(texts) >= 800
    assert len(set(texts)) == len(texts)
    held_out = sum(map(prompts.is_held_out, texts))
    assert 0.03 < held_out / len(texts) < 0.07


def test_none_shares_a_passage_with_the_prompts_of_the_bench():
    measured = set().union(*(_grams(prompt.text) for prompt in own_prompts()))
    texts = prompts.training_prompts()
    assert not [text for text in texts if _grams(text) & measured]
    assert not {prompt.text for prompt in own_prompts()}.intersection(texts)


def test_files_of_the_user_are_added_once(tmp_path):
    path = tmp_path / "more.jsonl"
    first = prompts.training_prompts()[0]
    path.write_text('{"prompt": "my own"}\n{"prompt": "my own"}\n', encoding="utf-8")
    texts = prompts.training_prompts([path, path])
    assert texts[0] == first
    assert texts.count("my own") == 1
    with pytest.raises(UsageError, match="cannot be read"):
        prompts.training_prompts([tmp_path / "none"])


def test_held_out_is_a_function_of_the_text():
    texts = [f"prompt {i}" for i in range(200)]
    held_out = [text for text in texts if prompts.is_held_out(text)]
    assert held_out == [text for text in reversed(texts) if prompts.is_held_out(text)][::-1]
    prompts.check_shares(texts)
    with pytest.raises(UsageError, match="some must be"):
        prompts.check_shares(held_out)


def test_digest_and_seeds_tell_prompts_apart():
    assert prompts.digest(["a", "b"]) == prompts.digest(["a", "b"])
    assert prompts.digest(["a", "b"]) != prompts.digest(["b", "a"]) != prompts.digest(["ba"])
    assert prompts.sample_seed(1, "a", 0) == prompts.sample_seed(1, "a", 0)
    seeds = [prompts.sample_seed(*key) for key in ((1, "a", 0), (1, "a", 1), (1, "b", 0), (2, "a", 0))]
    assert len(set(map(tuple, seeds))) == 4
