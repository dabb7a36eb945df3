"""Text to tokens and back, with llama_cpp's habits: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.dropin.errors import CallError, as_llama_cpp
from localspec.dropin.opening import Card
from localspec.serving.api import Engine


class Tokenizer:
    """The tokenizer of a loaded model. Safe from any thread."""

    def __init__(self, engine: Engine, card: Card) -> None:
        self._engine, self._card = engine, card

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """The tokens of UTF-8 bytes; with `special` the text of special tokens is read as those."""
        if not isinstance(text, bytes | bytearray):
            raise CallError(f"text is a {type(text).__name__}, not bytes", 'encode it: text.encode("utf-8")')
        return self._engine.tokenize(text.decode("utf-8", "replace"), add_special=add_bos, parse_special=special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of tokens; those of special ones with `special`. `prev_tokens` makes no difference."""
        with as_llama_cpp():
            text = b"".join(self._engine.piece(int(token), special=special) for token in tokens)
        # some vocabularies begin every text with a space
        starts = len(tokens) > 0 and tokens[0] == self._card.bos
        return text[1:] if starts and text.startswith(b" ") else text

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """`tokenize` of a `str`."""
        return self.tokenize(text.encode("utf-8", "ignore"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """`detokenize` as a `str`, without what is no UTF-8."""
        return self.detokenize(tokens).decode("utf-8", "ignore")
