"""Small vocabularies, and a slow judge of pairs of them, written without looking at `localspec.pairs.compare`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from localspec.pairs.vocabulary import Kind, Vocabulary

Token = tuple[bytes, Kind]


def vocabulary(
    tokens: Iterable[Token], ends: Iterable[int] = (), bos: int | None = None, adds_bos: bool = False
) -> Vocabulary:
    texts, kinds = zip(*tokens, strict=True)
    return Vocabulary("BPE", list(texts), np.array(kinds, np.uint8), frozenset(ends), bos, adds_bos)


def words(*texts: str) -> list[Token]:
    return [(text.encode(), Kind.TEXT) for text in texts]


def padding(first: int, n: int) -> list[Token]:
    return [(b"[PAD%d]" % i, Kind.UNUSED) for i in range(first, first + n)]


def meet(target: Token, draft: Token) -> str:
    """How two tokens of one id relate: "same", "differ", or "lonely" where one side does not use the id."""
    if Kind.UNUSED in (target[1], draft[1]):
        return "same" if target[0] == draft[0] or target[1] == draft[1] else "lonely"
    if target[0] != draft[0]:
        return "differ"
    written = []
    for text, kind in (target, draft):
        plain = kind is Kind.TEXT and all(byte < 128 for byte in text)
        written.append("verbatim" if plain or kind is Kind.VERBATIM else kind.name)
    if target[1] is draft[1]:
        return "same"
    return "same" if written[0] == written[1] else "differ"


def slow_judge(target: Vocabulary, draft: Vocabulary) -> tuple[int, bool]:
    """(ids in common, whether the draft model is accepted)."""
    ours, theirs = ([(t, Kind(k)) for t, k in zip(v.texts, v.kinds, strict=True)] for v in (target, draft))
    relations = [meet(a, b) for a, b in zip(ours, theirs, strict=False)]
    n_common = 0
    while n_common < len(relations) and relations[n_common] == "same":
        n_common += 1
    for i in range(n_common, len(relations)):
        shared = Kind.UNUSED not in (ours[i][1], theirs[i][1])
        if shared:  # whether equal or not: it is lost, and it is no padding
            return n_common, False
    if n_common == 0:
        return 0, False
    for i in range(n_common):
        if (i in target.ends) != (i in draft.ends):
            return n_common, False
    return n_common, not (target.adds_bos and target.bos is not None and target.bos >= n_common)
