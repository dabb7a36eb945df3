"""What the model is asked to make training text: prompts written for this project, and files of the user's own.

They are none of the prompts that `localspec bench` measures with. Some are held out: their answers are never trained
on and only measure accuracy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from localspec.bench.prompts import parse_prompts, read_prompts
from localspec.errors import UsageError

#: one prompt in so many is held out
HELD_OUT = 20


def training_prompts(files: Sequence[Path] = ()) -> list[str]:
    """The texts of the own prompts and of those in `files` (JSON lines), each once, in this order.

    Raises `UsageError` for a file that cannot be used.
    """
    own = (resources.files("localspec.train") / "prompts.jsonl").read_text(encoding="utf-8")
    prompts = parse_prompts(own.split("\n"), "prompts.jsonl", "own")
    for path in files:
        prompts += read_prompts(path)
    return list(dict.fromkeys(prompt.text for prompt in prompts))


def is_held_out(text: str) -> bool:
    """Whether answers to this prompt serve for measuring only; a function of the text alone."""
    return _number(text) % HELD_OUT == 0


def check_shares(prompts: Sequence[str]) -> None:
    """Refuse prompts of which none can be trained on, or none measured with. Raises `UsageError`."""
    n_held_out = sum(map(is_held_out, prompts))
    if not 0 < n_held_out < len(prompts):
        raise UsageError(
            f"of {len(prompts)} prompts {n_held_out} are held out: some must be, and some must not",
            "give more prompts",
        )


def digest(prompts: Sequence[str]) -> str:
    """16 hex digits that stand for these prompts in this order."""
    whole = hashlib.sha256()
    for text in prompts:
        whole.update(hashlib.sha256(text.encode("utf-8", "replace")).digest())
    return whole.hexdigest()[:16]


def sample_seed(seed: int, text: str, n: int) -> list[int]:
    """The entropy of the random numbers of the n-th answer to a prompt."""
    return [seed, _number(text), n]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8], "big")
