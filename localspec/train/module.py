"""Hydra and Medusa heads as a torch module, with one trimmed vocabulary head for all (papers.md 1.1, 1.3, 2.2).

Hydra's head i sees u_i = [h_t; E(x_{t+1}); ..; E(x_{t+1+i})] and predicts x_{t+2+i}. Its first block is
y = R u + SiLU(L u); further ones, and all of Medusa's, which sees h_t alone, are y = x + SiLU(W x + b), each with
weights of its own. Weights are float32; `forward` computes in the type of its inputs.

Inputs of Hydra are brought to one size first, as embeddings may be twenty times smaller than hidden states, and these
have a few huge elements: with one learning rate for all, the small ones would hardly be learned from. The stored heads
have that factor in their weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from localspec.heads.spec import HYDRA, FloatArray, HeadSpec, IntArray, tensor_shapes
from localspec.heads.tensors import Heads
from localspec.train.rounding import roundings


class HeadsModule(nn.Module):
    """`spec` is one of `trained_spec`; `output` are the rows of the model's own output matrix that the vocabulary head
    starts from, float32 [n_rows, n_embd]. `scale` float32 [(n_heads + 1) * n_embd] is what inputs are multiplied with,
    1 without. Random weights are drawn from torch's generator. With `rounding` all matrices are used as files of that
    type keep them.
    """

    scale: Tensor

    def __init__(self, spec: HeadSpec, output: Tensor, scale: Tensor | None = None, rounding: str = "") -> None:
        super().__init__()
        self.spec = spec
        self._round = roundings(rounding, spec.n_embd) if rounding else None
        n = spec.n_embd
        self.register_buffer("scale", torch.ones((spec.n_heads + 1) * n) if scale is None else scale.detach().clone())
        #: L and R of the first block of grounded heads, one above the other: one product does both
        self.first = nn.ModuleList(
            nn.Linear(n * spec.n_inputs(head), 2 * n) for head in range(spec.n_heads) if spec.grounded
        )
        self.later = nn.ModuleList(
            nn.ModuleList(nn.Linear(n, n) for _ in range(self._n_first, spec.n_layers)) for _ in range(spec.n_heads)
        )
        for linear in (linear for blocks in self.later for linear in blocks):
            nn.init.zeros_(linear.weight)  # the block is the identity at first
            nn.init.zeros_(linear.bias)
        self.output = nn.Parameter(output.detach().clone())

    @property
    def _n_first(self) -> int:
        """Number of the first block in `later`."""
        return int(self.spec.grounded)

    def forward(self, u: Tensor) -> list[Tensor]:
        """What each head hands to the vocabulary head, [n, n_embd] a head.

        `u` [n, (n_heads + 1) * n_embd] is the hidden state and the embeddings of the tokens after it.
        """
        n = self.spec.n_embd
        scaled = u if self._round else u * self.scale.to(u.dtype)
        outputs = []
        for head, later in enumerate(self.later):
            if self.spec.grounded:
                first = self.first[head]
                sums = F.linear(scaled[:, : first.in_features], self._first(head).to(u.dtype), first.bias.to(u.dtype))
                x = sums[:, n:] + F.silu(sums[:, :n])
            else:
                x = u[:, :n]
            for linear in later:
                weight = self._round[1](linear.weight) if self._round else linear.weight
                x = x + F.silu(F.linear(x, weight.to(x.dtype), linear.bias.to(x.dtype)))
            outputs.append(x)
        return outputs

    def _first(self, head: int) -> Tensor:
        """L and R of a head; with rounding as they are stored, the scale of inputs included."""
        weight: Tensor = self.first[head].weight
        return self._round[0](weight * self.scale[: weight.shape[1]]) if self._round else weight

    def vocabulary(self) -> Tensor:
        """The vocabulary head as it is used, [n_rows, n_embd]."""
        return self._round[1](self.output) if self._round else self.output

    @torch.no_grad()
    def go_on_from(self, heads: Heads, rows: IntArray) -> None:
        """Take the weights of `heads`, which `to_heads` of a module of these blocks made; `rows` are the rows of this
        vocabulary head that its rows go to. Rows that get none keep what they have, and heads that get none begin as
        the last one that does, one token further on."""
        n = self.spec.n_embd
        last = heads.spec.n_heads - 1

        def take(parameter: Tensor, name: str) -> None:
            parameter.copy_(torch.from_numpy(heads.tensors[name]))

        self.output[torch.from_numpy(rows).long()] = torch.from_numpy(heads.tensors["output.weight"])
        for head, first in enumerate(self.first):
            for part, half in (("l", slice(0, n)), ("r", slice(n, 2 * n))):
                given = f"head.{min(head, last)}.blk.0.{part}"
                if head <= last:
                    take(first.weight[half], f"{given}.weight")
                else:
                    first.weight[half] = _further(torch.from_numpy(heads.tensors[f"{given}.weight"]), head - last)
                take(first.bias[half], f"{given}.bias")
            first.weight.div_(self.scale[: first.in_features])
        for head, later in enumerate(self.later):
            for block, linear in enumerate(later, start=self._n_first):
                take(linear.weight, f"head.{min(head, last)}.blk.{block}.l.weight")
                take(linear.bias, f"head.{min(head, last)}.blk.{block}.l.bias")

    def to_heads(self, d2t: IntArray) -> Heads:
        """The weights as they are stored; `d2t` names the token of each row of the vocabulary head."""
        n = self.spec.n_embd
        tensors = {"output.weight": _array(self.output)}
        for head, first in enumerate(self.first):
            for part, rows in (("l", slice(0, n)), ("r", slice(n, 2 * n))):
                weight = first.weight[rows] * self.scale[: first.in_features]
                tensors[f"head.{head}.blk.0.{part}.weight"] = _array(weight)
                tensors[f"head.{head}.blk.0.{part}.bias"] = _array(first.bias[rows])
        for head, later in enumerate(self.later):
            for block, linear in enumerate(later, start=self._n_first):
                tensors[f"head.{head}.blk.{block}.l.weight"] = _array(linear.weight)
                tensors[f"head.{head}.blk.{block}.l.bias"] = _array(linear.bias)
        return Heads(self.spec, {name: tensors[name] for name in tensor_shapes(self.spec)}, d2t)


def trained_spec(
    n_embd: int,
    n_vocab: int,
    *,
    n_heads: int,
    n_layers: int,
    n_draft_vocab: int,
    n_later_vocab: int = 0,
    base_name: str,
    fingerprint: str,
    arch: str = HYDRA,
) -> HeadSpec:
    """The spec of the heads that are trained here. Raises `UsageError` for values that make no heads."""
    return HeadSpec(
        arch=arch,
        n_heads=n_heads,
        n_layers=n_layers,
        n_embd=n_embd,
        n_vocab=n_vocab,
        n_draft_vocab=n_draft_vocab,
        n_later_vocab=n_later_vocab if n_later_vocab < n_draft_vocab else 0,
        grounded=arch == HYDRA,
        tied_blocks=False,
        shared_output=True,
        base_name=base_name,
        base_fingerprint=fingerprint,
    )


def _further(weight: Tensor, n_tokens: int) -> Tensor:
    """First block weights [n_embd, k * n_embd] of a grounded head, made those of one `n_tokens` further on: it sees the
    same hidden state and the latest tokens, and nothing yet of the first ones."""
    n = len(weight)
    return torch.cat([weight[:, :n], weight.new_zeros(n, n * n_tokens), weight[:, n:]], dim=1)


def _array(values: Tensor) -> FloatArray:
    array: FloatArray = values.detach().float().cpu().numpy().copy()
    return array
