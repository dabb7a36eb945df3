"""What a file of draft heads is: its sizes, its tensors by name and shape, and which base model it belongs to.

Head i (0, 1, ...) predicts the token at depth i + 1 of the draft tree, of which the root is the last emitted token.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.errors import ModelError, UsageError

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Shape = tuple[int, ...]

#: Hydra; Hydra with a prefix layer (Hydra++); Medusa
HYDRA, HYDRA_PREFIX, MEDUSA = ARCHS = ("hydra-mlp", "hydra-prefix-mlp", "medusa")
#: rows of weights that native kernels keep together
ROW_GROUP = 64
# far more than anyone trains, few enough that a hostile file cannot ask for a table of millions of tensors
MAX_HEADS = MAX_LAYERS = 64

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class PrefixSpec:
    """The prefix layer of Hydra++: one Llama decoder layer with its own final norm.

    `d_head` is the width of an attention head, `n_rope` how many of its elements are rotated, `n_ff` the width of the
    feed-forward part. Rotation pairs element j with j + n_rope / 2, as in Hugging Face's Llama; rows of q and k are not
    permuted as in GGUF files of Llama models.

    Raises `UsageError` for sizes that make no layer.
    """

    n_head: int
    n_head_kv: int
    d_head: int
    n_ff: int
    rms_eps: float
    rope_theta: float
    n_rope: int

    def __post_init__(self) -> None:
        for name in ("n_head", "n_head_kv", "d_head", "n_ff", "n_rope"):
            _positive(f"the prefix layer's {name}", getattr(self, name))
        if self.n_head % self.n_head_kv:
            raise UsageError(
                f"the prefix layer has {self.n_head} heads, not a multiple of its {self.n_head_kv} K/V heads"
            )
        if self.n_rope % 2 or self.n_rope > self.d_head:
            raise UsageError(
                f"the prefix layer rotates {self.n_rope} of {self.d_head} elements: an even part is needed"
            )
        for name in ("rms_eps", "rope_theta"):
            # in the precision of the file, so that what was written is what is read
            with np.errstate(over="ignore"):
                value = float(np.float32(getattr(self, name)))
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"the prefix layer's {name} is {getattr(self, name)}, not a positive number")
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """Draft heads (papers.md 1.1 and 1.3).

    `n_heads` is the depth that they draft, `n_layers` the blocks of a head. The first block of a `grounded` head i
    takes the hidden state and the embeddings of i + 1 tokens, y = R u + SiLU(L u); every other block is
    y = x + SiLU(L x + b). With `tied_blocks` the latter are one module, stored once. `n_draft_vocab` is the number of
    tokens that can be drafted, 0 for all `n_vocab` tokens of the base model. Heads after the first look at the first
    `n_later_vocab` rows of theirs only, a multiple of `ROW_GROUP`, 0 for all: where the rows begin with the most
    frequent tokens, they draft nearly as well and cost less. `base_fingerprint` is that of `localspec.heads.base`,
    empty when it is not known.

    Raises `UsageError` for values that make no heads.
    """

    arch: str
    n_heads: int
    n_layers: int
    n_embd: int
    n_vocab: int
    grounded: bool
    n_draft_vocab: int = 0
    n_later_vocab: int = 0
    tied_blocks: bool = True
    shared_output: bool = False
    output_bias: bool = False
    base_name: str = ""
    base_fingerprint: str = ""
    prefix: PrefixSpec | None = None
    licence: str = ""
    recipe: str = ""

    def __post_init__(self) -> None:
        if self.arch not in ARCHS:
            raise UsageError(f"heads of the kind {self.arch!r} are not known", f"known are {', '.join(ARCHS)}")
        for name in ("n_heads", "n_layers", "n_embd", "n_vocab"):
            _positive(f"{name} of the heads", getattr(self, name))
        if self.n_heads > MAX_HEADS or self.n_layers > MAX_LAYERS:
            raise UsageError(
                f"{self.n_heads} heads of {self.n_layers} blocks are more than {MAX_HEADS} of {MAX_LAYERS}"
            )
        if not 0 <= self.n_draft_vocab <= self.n_vocab:
            raise UsageError(f"{self.n_draft_vocab} tokens to draft do not fit a vocabulary of {self.n_vocab}")
        if not 0 <= self.n_later_vocab <= self.n_rows or self.n_later_vocab % ROW_GROUP:
            raise UsageError(
                f"{self.n_later_vocab} tokens for heads after the first are no multiple of {ROW_GROUP}, or more than"
                f" the {self.n_rows} of the first"
            )
        if self.arch == MEDUSA and self.grounded:
            raise UsageError("Medusa heads are not grounded: they do not see the tokens drafted before")
        if (self.arch == HYDRA_PREFIX) != (self.prefix is not None):
            raise UsageError(f"{self.arch} heads {'need a' if self.prefix is None else 'have no'} prefix layer")
        if self.base_fingerprint and not _FINGERPRINT.fullmatch(self.base_fingerprint):
            raise UsageError(f"the fingerprint {self.base_fingerprint!r} is not 16 hexadecimal digits")

    @property
    def n_rows(self) -> int:
        """Rows of a vocabulary head: the tokens that can be drafted."""
        return self.n_draft_vocab or self.n_vocab

    def n_rows_of(self, head: int) -> int:
        """Rows of its vocabulary head that a head looks at, the first ones."""
        return self.n_later_vocab if head > 0 and self.n_later_vocab else self.n_rows

    def n_inputs(self, head: int) -> int:
        """Vectors of width `n_embd` that the first block of a head takes: the hidden state, then embeddings."""
        return head + 2 if self.grounded else 1

    def stored_block(self, block: int) -> int:
        """Which block's tensors stand for `block`: tied blocks are stored once."""
        if not self.tied_blocks:
            return block
        return min(block, 1 if self.grounded else 0)

    def output_name(self, head: int) -> str:
        """Name of the vocabulary head of a head, without `.weight`."""
        return "output" if self.shared_output else f"head.{head}.output"


def _positive(what: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{what} is {value}, not a positive number")


def tensor_shapes(spec: HeadSpec) -> dict[str, Shape]:
    """Every weight of such heads: name -> shape in NumPy's order, rows first. `d2t` is not among them."""
    shapes: dict[str, Shape] = _prefix_shapes(spec.prefix, spec.n_embd) if spec.prefix is not None else {}
    n = spec.n_embd
    for head in range(spec.n_heads):
        for block in sorted({spec.stored_block(block) for block in range(spec.n_layers)}):
            grounded = spec.grounded and block == 0
            for part in ("l", "r") if grounded else ("l",):
                name = f"head.{head}.blk.{block}.{part}"
                shapes[f"{name}.weight"] = (n, n * (spec.n_inputs(head) if grounded else 1))
                shapes[f"{name}.bias"] = (n,)
        output = spec.output_name(head)
        shapes[f"{output}.weight"] = (spec.n_rows, n)
        if spec.output_bias:
            shapes[f"{output}.bias"] = (spec.n_rows,)
    return shapes


def _prefix_shapes(prefix: PrefixSpec, n_embd: int) -> dict[str, Shape]:
    n_q, n_kv = prefix.n_head * prefix.d_head, prefix.n_head_kv * prefix.d_head
    return {
        "prefix.attn_norm.weight": (n_embd,),
        "prefix.attn_q.weight": (n_q, n_embd),
        "prefix.attn_k.weight": (n_kv, n_embd),
        "prefix.attn_v.weight": (n_kv, n_embd),
        "prefix.attn_output.weight": (n_embd, n_q),
        "prefix.ffn_norm.weight": (n_embd,),
        "prefix.ffn_gate.weight": (prefix.n_ff, n_embd),
        "prefix.ffn_up.weight": (prefix.n_ff, n_embd),
        "prefix.ffn_down.weight": (n_embd, prefix.n_ff),
        "prefix.output_norm.weight": (n_embd,),
    }


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """What heads need to know of the model that they are to draft for; an unknown `fingerprint` is empty."""

    name: str
    n_embd: int
    n_vocab: int
    fingerprint: str = ""


def check_base(spec: HeadSpec, base: BaseFacts) -> None:
    """Refuse heads that were made for another model than `base`. Raises `ModelError`.

    Width and vocabulary must be the same, and the fingerprint where both are known: all quantisations of a model have
    the same one.
    """
    made_for = spec.base_name or "another model"
    hint = f"choose heads that were made for {base.name}" + (f", or the model {made_for}" if spec.base_name else "")

    def refuse(reason: str) -> None:
        raise ModelError(f"these heads were made for {made_for} and do not fit {base.name}: {reason}", hint)

    if spec.n_embd != base.n_embd:
        refuse(f"its hidden states have {base.n_embd} elements, the heads take {spec.n_embd}")
    if spec.n_vocab != base.n_vocab:
        refuse(f"it has {base.n_vocab} tokens, the heads know {spec.n_vocab}")
    if spec.base_fingerprint and base.fingerprint and spec.base_fingerprint != base.fingerprint:
        refuse(f"its norms have the fingerprint {base.fingerprint}, not {spec.base_fingerprint}")
