"""The loss: cross entropy against the model's own distribution, mixed with that against the text's own token.

Rows of logits are as wide as the trimmed vocabulary, and there are n_heads of them a position: kept for a backward pass
they would fill the memory. So the gradient is computed beside the loss, a few positions at a time, and both are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: share of the model's distribution in the loss; the rest is that of the text's own token
TEACHER_SHARE = 0.7
#: logits of one head that are in memory at a time
MAX_LOGITS = 1 << 22


@dataclass(frozen=True)
class Targets:
    """What the heads should say, for runs of consecutive positions.

    `hidden` [n_runs, length + n_heads - 1, n_embd] are the hidden states after the first of each run: row
    j + i belongs to head i at position j. `labels` [n_heads, n_runs, length] are rows of the vocabulary head; -1 where
    the token has no row. `valid`, of the same shape, says which of them count at all.
    """

    hidden: Tensor
    labels: Tensor
    valid: Tensor


def distillation_loss(
    x: list[Tensor], output: Tensor, teacher: Tensor, targets: Targets, n_later: int = 0
) -> tuple[Tensor, Tensor]:
    """The mean loss over positions, summed over heads; and the mean of each head [n_heads], without gradient.

    `x` are the outputs of the heads, [n_runs * length, n_embd] each. `output` is the vocabulary head and `teacher` the
    model's own matrix over the same rows, both [n_rows, n_embd]; heads after the first know the first `n_later` of
    these rows, all if it is 0. A position without a label that its head knows counts with its teacher's share alone.
    """
    losses: tuple[Tensor, Tensor] = _Loss.apply(output, teacher, targets, n_later, *x)
    return losses


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, teacher: Tensor, targets: Targets, n_later: int, *x: Tensor
    ) -> tuple[Tensor, Tensor]:
        n_heads, n_runs, length = targets.labels.shape
        weights = output.to(x[0].dtype)
        n_valid = targets.valid.sum(dim=(1, 2)).clamp(min=1)
        step = max(1, MAX_LOGITS // (length * len(output)))
        sums = torch.zeros(n_heads, device=output.device)
        grad_output = torch.zeros_like(output, dtype=torch.float32)
        grads = [torch.empty_like(head) for head in x]
        for start in range(0, n_runs, step):
            runs = slice(start, min(start + step, n_runs))
            rows = slice(start * length, runs.stop * length)
            p = torch.softmax(targets.hidden[runs] @ teacher.T, dim=-1)
            for head in range(n_heads):
                n = n_later if head and n_later else len(output)
                q = p[:, head : head + length, :n].reshape(-1, n)
                if n < len(output):
                    q = q / q.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)
                labels, valid = targets.labels[head, runs].reshape(-1), targets.valid[head, runs].reshape(-1)
                loss, grad = _head_loss(x[head][rows] @ weights[:n].T, q, labels.where(labels < n, -1), valid)
                sums[head] += loss
                # the small factors are scaled, which costs less than scaling `grad`
                scale = (1 / n_valid[head]).to(grad.dtype)
                grads[head][rows] = (grad @ weights[:n]) * scale
                grad_output[:n] += grad.T @ (x[head][rows] * scale)
        ctx.save_for_backward(grad_output, *grads)
        means = sums / n_valid
        ctx.mark_non_differentiable(means)
        return means.sum(), means

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_output, *grads = ctx.saved_tensors
        return grad_output * grad, None, None, None, *(values * grad.to(values.dtype) for values in grads)


def _head_loss(logits: Tensor, p: Tensor, labels: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss of the rows of `logits` [n, n_rows], and its gradient by them; `p` is the teacher's softmax."""
    has_label = valid & (labels >= 0)
    share = valid.float() * TEACHER_SHARE
    hard = has_label.float() * (1 - TEACHER_SHARE)
    at = labels.clamp(min=0).unsqueeze(1)
    log_q = torch.log_softmax(logits, dim=-1)
    soft = (p * log_q).sum(dim=-1).float()
    loss = -(share * soft + hard * log_q.gather(1, at).flatten().float()).sum()
    grad = log_q.exp_().mul_((share + hard).to(logits.dtype).unsqueeze(1))
    grad.addcmul_(p, share.to(logits.dtype).unsqueeze(1), value=-1)
    grad.scatter_add_(1, at, -hard.to(logits.dtype).unsqueeze(1))
    return loss, grad
