"""What a vocabulary is, as far as two models must agree on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as L

from localspec.engine.model import Model
from localspec.engine.weightless import open_weightless
from localspec.errors import ModelError

#: llama.cpp's kinds of tokenizers, by number
_TOKENIZERS = {
    L.LLAMA_VOCAB_TYPE_SPM: "SentencePiece",
    L.LLAMA_VOCAB_TYPE_BPE: "BPE",
    L.LLAMA_VOCAB_TYPE_WPM: "WordPiece",
    L.LLAMA_VOCAB_TYPE_UGM: "Unigram",
    L.LLAMA_VOCAB_TYPE_RWKV: "RWKV",
    L.LLAMA_VOCAB_TYPE_PLAMO2: "PLaMo",
}


class Kind(IntEnum):
    """How a token is written out: as its decoded text; not at all; as one byte; never, as it only fills the table up;
    as its text without decoding (llama.cpp's user-defined tokens)."""

    TEXT = 0
    SPECIAL = 1
    BYTE = 2
    UNUSED = 3
    VERBATIM = 4

    @property
    def words(self) -> str:
        """For people, behind "is"."""
        return ("text", "a special token", "a byte", "unused", "text without decoding")[self]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of a model, by id.

    `texts` are as stored in the file (`len(texts)` tokens), `kinds` uint8 [n_vocab] are `Kind`s, `ends` the ids that
    end an answer. `adds_bos` tells whether texts begin with the token `bos`.
    """

    tokenizer: str
    texts: Sequence[bytes]
    kinds: npt.NDArray[np.uint8]
    ends: frozenset[int]
    bos: int | None = None
    adds_bos: bool = False

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(cls, model: Model) -> Vocabulary:
        """The vocabulary of an open model: a tenth of a second for 150,000 tokens. Raises `ModelError`."""
        native, n = model.vocab, model.n_vocab
        kind = int(L.llama_vocab_type(native))
        if kind == L.LLAMA_VOCAB_TYPE_NONE:  # the library would end the process when asked for a text
            raise ModelError(f"{model.path.name} has no vocabulary")
        texts = list(map(L.llama_vocab_get_text, repeat(native), range(n)))
        attributes = np.fromiter(map(L.llama_vocab_get_attr, repeat(native), range(n)), np.int32, n)
        return cls(
            tokenizer=_TOKENIZERS.get(kind, f"type {kind}"),
            texts=texts,
            kinds=_kinds(texts, attributes),
            ends=model.eog,
            # llama.cpp's default may lie beyond a small table
            bos=model.bos if model.bos is not None and model.bos < n else None,
            adds_bos=model.add_bos,
        )

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """The vocabulary of a file, without its weights. Raises `ModelError` and `ModelNotFoundError`."""
        with open_weightless(path) as model:
            return cls.of(model)

    def show(self, token: int) -> str:
        """The text of a token for people, in quotes."""
        return repr(self.texts[token].decode("utf-8", "backslashreplace"))


def _kinds(texts: Sequence[bytes], attributes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    kinds = np.full(len(texts), Kind.TEXT, np.uint8)
    kinds[attributes & L.LLAMA_TOKEN_ATTR_USER_DEFINED != 0] = Kind.VERBATIM
    kinds[attributes & L.LLAMA_TOKEN_ATTR_BYTE != 0] = Kind.BYTE
    kinds[attributes & L.LLAMA_TOKEN_ATTR_UNUSED != 0] = Kind.UNUSED
    kinds[attributes & (L.LLAMA_TOKEN_ATTR_UNKNOWN | L.LLAMA_TOKEN_ATTR_CONTROL) != 0] = Kind.SPECIAL
    # what converters fill a table up with; older ones called these tokens user-defined
    padding = [i for i, text in enumerate(texts) if text.startswith(b"[PAD") and text == b"[PAD%d]" % i]
    kinds[padding] = Kind.UNUSED
    return kinds
