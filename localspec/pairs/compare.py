"""Whether a model can draft for another one: whether the ids of their tokens mean the same.

The rule differs from llama.cpp's (common/speculative.cpp: tables of nearly one size, equal texts from id 5 on, equal
BOS and EOS). It is stricter, as a token that means something else in the draft model could be forgiven by a loose
verifier and land in the text: all ids count, kinds and end tokens too. And it is looser where nothing can go wrong: a
family fills its tables up to different sizes (Qwen2.5: 151,936 and 152,064), so ids that only one side has, at the end
of the tables, are left out of the game instead.
"""

from __future__ import annotations

import logging
import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as L

from localspec.engine.model import Model
from localspec.errors import ModelError
from localspec.pairs.vocabulary import Kind, Vocabulary

logger = logging.getLogger(__name__)

#: differing ids that an error names
MAX_NAMED = 3

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a draft model fits a target.

    Ids below `n_common` mean the same to both. `reason` says why the pair is refused, None when it is not, and
    `different` has the first ids that differ. `notes` are what a person should know about a pair that works.
    """

    n_common: int
    reason: str | None = None
    different: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def check_pair(target: Model, draft: Model) -> int:
    """How many ids, from 0 on, mean the same token in both models. Others must be neither drafted nor fed to the draft.

    Raises `ModelError`, with the reason and the first differing ids, when `draft` cannot draft for `target`.
    """
    fit = fit_of(target, draft)
    if fit.reason is not None:
        raise ModelError(
            f"{draft.path.name} cannot draft for {target.path.name}: {fit.reason}",
            "`localspec drafts MODEL` lists what can draft for a model",
        )
    for note in fit.notes:
        logger.info("%s as a draft for %s: %s", draft.path.name, target.path.name, note)
    return fit.n_common


def fit_of(target: Model, draft: Model) -> Fit:
    """How well `draft` fits `target`; needs no weights. Raises `ModelError` for a model without a vocabulary."""
    for model, who in ((target, "the target"), (draft, "the draft model")):
        if (reason := _no_trees(model)) is not None:
            return Fit(0, f"{who} ({model.arch}) {reason}")
    return compare(Vocabulary.of(target), Vocabulary.of(draft))


def _no_trees(model: Model) -> str | None:
    """Why contexts of `model` hold no trees, as far as its file tells; None where nothing is in the way."""
    if model.is_recurrent or model.is_hybrid:
        return f"is {'recurrent' if model.is_recurrent else 'hybrid'}: it cannot step back from a rejected token"
    if L.llama_model_rope_type(model.handle) in (L.LLAMA_ROPE_TYPE_MROPE, L.LLAMA_ROPE_TYPE_IMROPE):
        return "has positions in several dimensions (M-RoPE), with which no drafts can be checked"
    return None


def compare(target: Vocabulary, draft: Vocabulary) -> Fit:
    """How well the vocabularies fit.

    Refused are, in this order: tokenizers of different kinds; an id that both use for different tokens (other text, or
    special in one and text in the other); tables that have nothing in common; ids below `n_common` that end an answer
    for one side only; a BOS of the target that the draft model does not know.

    Merely noted are: tokens of the target that the draft model lacks, as text without them is drafted all the same;
    and another habit of beginning texts, as the draft model reads the target's tokens, at worst drafting worse.
    """
    if target.tokenizer != draft.tokenizer:
        return Fit(0, f"the target has a {target.tokenizer} tokenizer and the draft model a {draft.tokenizer} one")
    n = min(len(target), len(draft))
    same, one_sided = _agreement(target, draft, n)
    n_common = n if same.all() else int(np.argmin(same))
    differing = ~same & ~one_sided
    if not differing.any():
        # an id in the middle that one side lacks is no padding: whoever leaves it out loses the ids after it
        unused = (target.kinds[:n] == Kind.UNUSED) | (draft.kinds[:n] == Kind.UNUSED)
        if (same & ~unused)[n_common:].any():
            differing = ~same
    if differing.any():
        ids = np.flatnonzero(differing)
        named = tuple(int(i) for i in ids[:MAX_NAMED])
        return Fit(n_common, _difference(target, draft, len(ids), n, named), named)
    if n_common == 0:
        return Fit(0, "the vocabularies have no token in common")
    if ends := sorted(i for i in target.ends ^ draft.ends if i < n_common):
        return Fit(n_common, _other_ends(target, ends), tuple(ends[:MAX_NAMED]))
    if target.adds_bos and target.bos is not None and target.bos >= n_common:
        begin = f"texts begin with {target.show(target.bos)} (id {target.bos})"
        return Fit(n_common, f"{begin}, which the draft model does not know", (target.bos,))
    return Fit(n_common, notes=tuple(_notes(target, draft, n_common)))


def _agreement(target: Vocabulary, draft: Vocabulary, n: int) -> tuple[BoolArray, BoolArray]:
    """Of the first `n` ids: which mean the same token, and which of the others only one side uses; bool [n] each."""
    equal = np.fromiter(map(operator.eq, target.texts[:n], draft.texts[:n]), np.bool_, n)
    ours, theirs = target.kinds[:n], draft.kinds[:n]
    unused_here, unused_there = ours == Kind.UNUSED, theirs == Kind.UNUSED
    kinds = (ours == theirs) | unused_here | unused_there  # files disagree on which tokens are unused
    # decoding changes spaces and bytes beyond ASCII, so a plain text is written out alike with and without it
    decoded = (np.minimum(ours, theirs) == Kind.TEXT) & (np.maximum(ours, theirs) == Kind.VERBATIM)
    for i in np.flatnonzero(equal & decoded).tolist():
        kinds[i] = target.texts[i].isascii()
    same = (equal & kinds) | (unused_here & unused_there)
    return same, ~same & (unused_here ^ unused_there)


def _difference(target: Vocabulary, draft: Vocabulary, count: int, n: int, named: tuple[int, ...]) -> str:
    def shown(i: int) -> str:
        if target.texts[i] != draft.texts[i]:
            return f"{i} (target {target.show(i)}, draft {draft.show(i)})"
        ours, theirs = Kind(target.kinds[i]), Kind(draft.kinds[i])
        return f"{i} ({target.show(i)} is {ours.words} in the target and {theirs.words} in the draft)"

    where = "id" if count == 1 else f"{count:,} of {n:,} ids, first at"
    return f"the vocabularies differ at {where} {', '.join(map(shown, named))}"


def _other_ends(target: Vocabulary, ends: list[int]) -> str:
    parts = []
    for who, ids in (
        ("the target", [i for i in ends if i in target.ends]),
        ("the draft model", [i for i in ends if i not in target.ends]),
    ):
        if ids:
            shown = ", ".join(f"{target.show(i)} (id {i})" for i in ids[:MAX_NAMED])
            parts.append(f"{shown} ends an answer of {who} only")
    return "the end tokens differ: " + ", and ".join(parts)


def _notes(target: Vocabulary, draft: Vocabulary, n_common: int) -> list[str]:
    notes = []
    missing = n_common + np.flatnonzero(target.kinds[n_common:] != Kind.UNUSED)
    if len(missing):
        first = int(missing[0])
        what = f"{len(missing):,} tokens of the target" if len(missing) > 1 else "one token of the target"
        notes.append(f"it does not know {what}, from {target.show(first)} (id {first}) on")
    if draft.adds_bos and draft.bos is not None and not (target.adds_bos and target.bos == draft.bos):
        notes.append(f"it is used to texts that begin with {draft.show(draft.bos)}, the target's do not")
    elif target.adds_bos and target.bos is not None and not draft.adds_bos:
        notes.append(f"it is used to texts that do not begin with {target.show(target.bos)}, the target's do")
    return notes
