"""The heads as torch modules, written from the description of the papers; their state dicts have the published keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.heads.checkpoints import EPS, N_FF, N_HEAD, N_HEAD_KV, N_HEADS, N_LAYERS, THETA, H, V

D_HEAD = H // N_HEAD


class ResBlock(nn.Module):
    """y = R u + SiLU(L u), with R the identity when nothing is joined to the hidden state."""

    def __init__(self, n_joined: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(H * (1 + n_joined), H)
        self.res_connection = nn.Linear(H * (1 + n_joined), H) if n_joined else nn.Identity()

    def forward(self, u: Tensor) -> Tensor:
        return self.res_connection(u) + F.silu(self.linear(u))


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(H))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(H, N_HEAD * D_HEAD, bias=False)
        self.k_proj = nn.Linear(H, N_HEAD_KV * D_HEAD, bias=False)
        self.v_proj = nn.Linear(H, N_HEAD_KV * D_HEAD, bias=False)
        self.o_proj = nn.Linear(N_HEAD * D_HEAD, H, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        frequencies = 1.0 / THETA ** (torch.arange(0, D_HEAD, 2).float() / D_HEAD)
        angles = torch.outer(torch.arange(n).float(), frequencies).repeat(1, 2)

        def heads(y: Tensor) -> Tensor:
            return y.view(n, -1, D_HEAD).transpose(0, 1)

        def rotated(y: Tensor) -> Tensor:
            a, b = y.chunk(2, dim=-1)
            return y * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()

        repeats = N_HEAD // N_HEAD_KV
        q = rotated(heads(self.q_proj(x)))
        k = rotated(heads(self.k_proj(x))).repeat_interleave(repeats, dim=0)
        v = heads(self.v_proj(x)).repeat_interleave(repeats, dim=0)
        scores = q @ k.transpose(1, 2) / math.sqrt(D_HEAD)
        scores = scores + torch.full((n, n), -math.inf).triu(1)
        return self.o_proj((scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(H, N_FF, bias=False)
        self.up_proj = nn.Linear(H, N_FF, bias=False)
        self.down_proj = nn.Linear(N_FF, H, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention()
        self.mlp = Mlp()
        self.input_layernorm = RMSNorm()
        self.post_attention_layernorm = RMSNorm()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """One layer over hidden states [n, H], and the final norm; the embedding is there but not used."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(V, H)
        self.layers = nn.ModuleList([DecoderLayer()])
        self.norm = RMSNorm()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layers[0](x))


class Hydra(nn.Module):
    """Hydra heads; with `prefix` a Llama layer stands before them, and Dropout before every block."""

    def __init__(self, prefix: bool = False, grounded: bool = True) -> None:
        super().__init__()
        self.grounded = grounded
        self.input_embed_fn = nn.Embedding(V, H)
        if prefix:
            self.prefix_embeding_layer = Llama()
        dropout = [nn.Dropout(0.2)] if prefix else []
        mlps = []
        for i in range(N_HEADS):
            first = [*dropout, ResBlock(i + 1)] if grounded else []
            mlps.append(nn.Sequential(*first, *[*dropout, ResBlock()] * (N_LAYERS - len(first[-1:]))))
        self.hydra_mlp = nn.ModuleList(mlps)
        outputs = [nn.Linear(H, V) for _ in range(N_HEADS)]
        self.hydra_lm_head = nn.ModuleList([nn.Sequential(*dropout, out) if prefix else out for out in outputs])

    def logits(self, head: int, g: Tensor, tokens: Tensor) -> Tensor:
        """For one hidden state [H] and a path from the root on."""
        joined = [g, *self.input_embed_fn(tokens)] if self.grounded else [g]
        return self.hydra_lm_head[head](self.hydra_mlp[head](torch.cat(joined)))


class Medusa(nn.ModuleList):
    def __init__(self) -> None:
        super().__init__(nn.Sequential(*[ResBlock()] * N_LAYERS, nn.Linear(H, V, bias=False)) for _ in range(N_HEADS))

    def logits(self, head: int, g: Tensor, tokens: Tensor) -> Tensor:
        return self[head](g)
