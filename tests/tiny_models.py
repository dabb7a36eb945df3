"""Tiny models with random weights, written as GGUF: every kind of cache without a download.

`write_tiny(path, kind)` with kind
  "llama"    full attention (3 layers, 4 heads, 2 K/V heads)
  "gemma3"   sliding window of 64 in 5 of 6 layers (iSWA)
  "mamba"    recurrent
  "lfm2"     hybrid: attention between two short convolutions
  "qwen2vl"  full attention with positions in several dimensions (M-RoPE)

Matrices are Q4_1 where they can be: the stock CPU kernels give the same row for every batch size with it. With
`quantised=False` they are F32, so that a difference in the last bit stays one instead of flipping a rounding. The
vocabulary is the 256 bytes, a few words and the usual special tokens, so any text can be tokenised. `n_vocab`, `tokens`
(text and type of some ids) and `eos` make another one of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

N_EMBD, N_HEAD, N_HEAD_KV, D_HEAD, N_FF, N_SWA, N_CTX_TRAIN = 128, 4, 2, 32, 256, 64, 4096
N_CONV = 3  # width of the short convolutions
N_LAYER = {"llama": 3, "gemma3": 6, "mamba": 2, "lfm2": 3, "qwen2vl": 2}
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
WORDS = [" the", " a", " of", " tree", " node", " token", "\n", "ing", "er", " and"]
TOKENS = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)] + [word.replace(" ", "\u2581") for word in WORDS]
N_VOCAB = len(TOKENS) + (-len(TOKENS)) % 32


class _Weights:
    def __init__(self, writer: gguf.GGUFWriter, seed: int, quantised: bool) -> None:
        self.writer = writer
        self.quantised = quantised
        self.rng = np.random.default_rng(seed)

    def matrix(self, name: str, n_out: int, n_in: int, gain: float = 1.0) -> None:
        data = (self.rng.standard_normal((n_out, n_in)) * gain / np.sqrt(n_in)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q4_1 if self.quantised and n_in % 32 == 0 else gguf.GGMLQuantizationType.F32
        self.writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    def vector(self, name: str, *shape: int, scale: float = 0.1, centre: float = 1.0) -> None:
        self.writer.add_tensor(name, (centre + scale * self.rng.standard_normal(shape)).astype(np.float32))


def _vocabulary(
    writer: gguf.GGUFWriter, n_vocab: int, changes: Mapping[int, tuple[str, gguf.TokenType]], eos: int
) -> None:
    tokens = TOKENS + [f"<pad{i}>" for i in range(n_vocab - len(TOKENS))]
    n_bytes_end = len(SPECIAL) + 256
    types = []
    for i in range(n_vocab):
        if i == 0:
            types.append(gguf.TokenType.UNKNOWN)
        elif i < len(SPECIAL):
            types.append(gguf.TokenType.CONTROL)
        elif i < n_bytes_end:
            types.append(gguf.TokenType.BYTE)
        else:
            types.append(gguf.TokenType.NORMAL if i < len(TOKENS) else gguf.TokenType.UNUSED)
    for i, (text, kind) in changes.items():
        tokens[i], types[i] = text, kind
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(n_vocab)])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)


def _attention(weights: _Weights, i: int) -> None:
    weights.vector(f"blk.{i}.attn_norm.weight", N_EMBD)
    weights.matrix(f"blk.{i}.attn_q.weight", N_HEAD * D_HEAD, N_EMBD, 2.0)
    weights.matrix(f"blk.{i}.attn_k.weight", N_HEAD_KV * D_HEAD, N_EMBD, 2.0)
    weights.matrix(f"blk.{i}.attn_v.weight", N_HEAD_KV * D_HEAD, N_EMBD)
    weights.matrix(f"blk.{i}.attn_output.weight", N_EMBD, N_HEAD * D_HEAD)


def _feed_forward(weights: _Weights, i: int) -> None:
    weights.vector(f"blk.{i}.ffn_norm.weight", N_EMBD)
    weights.matrix(f"blk.{i}.ffn_gate.weight", N_FF, N_EMBD)
    weights.matrix(f"blk.{i}.ffn_up.weight", N_FF, N_EMBD)
    weights.matrix(f"blk.{i}.ffn_down.weight", N_EMBD, N_FF)


def _attention_block(weights: _Weights, i: int, kind: str) -> None:
    _attention(weights, i)
    _feed_forward(weights, i)
    if kind == "qwen2vl":
        for name, size in (("attn_q", N_HEAD * D_HEAD), ("attn_k", N_HEAD_KV * D_HEAD), ("attn_v", N_HEAD_KV * D_HEAD)):
            weights.vector(f"blk.{i}.{name}.bias", size, centre=0.0)
    elif kind == "gemma3":
        for name, size in (
            ("attn_q_norm", D_HEAD),
            ("attn_k_norm", D_HEAD),
            ("post_attention_norm", N_EMBD),
            ("post_ffw_norm", N_EMBD),
        ):
            weights.vector(f"blk.{i}.{name}.weight", size)


def _lfm2_block(weights: _Weights, i: int) -> None:
    if _is_attention(i):
        _attention(weights, i)
        weights.vector(f"blk.{i}.attn_q_norm.weight", D_HEAD)
        weights.vector(f"blk.{i}.attn_k_norm.weight", D_HEAD)
    else:
        weights.vector(f"blk.{i}.attn_norm.weight", N_EMBD)
        weights.vector(f"blk.{i}.shortconv.conv.weight", N_EMBD, N_CONV, scale=0.5, centre=0.0)
        weights.matrix(f"blk.{i}.shortconv.in_proj.weight", 3 * N_EMBD, N_EMBD)
        weights.matrix(f"blk.{i}.shortconv.out_proj.weight", N_EMBD, N_EMBD)
    _feed_forward(weights, i)


def _is_attention(i: int) -> bool:
    """Whether layer `i` of the hybrid model is one with K/V rows."""
    return i % 2 == 1


def _mamba_block(weights: _Weights, i: int) -> None:
    d_inner, d_state, dt_rank, d_conv = 2 * N_EMBD, 16, 8, 4
    weights.vector(f"blk.{i}.attn_norm.weight", N_EMBD)
    weights.matrix(f"blk.{i}.ssm_in.weight", 2 * d_inner, N_EMBD)
    weights.vector(f"blk.{i}.ssm_conv1d.weight", d_inner, d_conv, scale=0.5, centre=0.0)
    weights.vector(f"blk.{i}.ssm_conv1d.bias", d_inner, centre=0.0)
    weights.matrix(f"blk.{i}.ssm_x.weight", dt_rank + 2 * d_state, d_inner)
    weights.matrix(f"blk.{i}.ssm_dt.weight", d_inner, dt_rank)
    weights.vector(f"blk.{i}.ssm_dt.bias", d_inner, centre=0.0)
    weights.vector(f"blk.{i}.ssm_a", d_inner, d_state, centre=-1.0)
    weights.vector(f"blk.{i}.ssm_d", d_inner)
    weights.matrix(f"blk.{i}.ssm_out.weight", N_EMBD, d_inner)


def _mamba_facts(writer: gguf.GGUFWriter) -> None:
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_inner_size(2 * N_EMBD)
    writer.add_ssm_state_size(16)
    writer.add_ssm_time_step_rank(8)


def _attention_facts(writer: gguf.GGUFWriter, kind: str) -> None:
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_key_length(D_HEAD)
    writer.add_value_length(D_HEAD)
    writer.add_rope_dimension_count(D_HEAD)
    writer.add_rope_freq_base(10000.0)
    if kind == "lfm2":
        writer.add_head_count_kv([N_HEAD_KV if _is_attention(i) else 0 for i in range(N_LAYER[kind])])
        writer.add_shortconv_l_cache(N_CONV)
    else:
        writer.add_head_count_kv(N_HEAD_KV)
    if kind == "gemma3":
        writer.add_sliding_window(N_SWA)
    if kind == "qwen2vl":
        writer.add_rope_dimension_sections([4, 6, 6, 0])


def write_tiny(
    path: Path,
    kind: str = "llama",
    seed: int = 1,
    quantised: bool = True,
    *,
    n_vocab: int = N_VOCAB,
    tokens: Mapping[int, tuple[str, gguf.TokenType]] | None = None,
    eos: int = 4,
) -> Path:
    """Write the model and return `path`."""
    writer = gguf.GGUFWriter(path, kind)
    n_layer = N_LAYER[kind]
    writer.add_name(f"tiny-{kind}")
    writer.add_block_count(n_layer)
    writer.add_context_length(N_CTX_TRAIN)
    writer.add_embedding_length(N_EMBD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    if kind == "mamba":
        _mamba_facts(writer)
    else:
        _attention_facts(writer, kind)
    _vocabulary(writer, n_vocab, tokens or {}, eos)

    weights = _Weights(writer, seed, quantised)
    weights.matrix("token_embd.weight", n_vocab, N_EMBD, gain=np.sqrt(N_EMBD))
    for i in range(n_layer):
        if kind == "mamba":
            _mamba_block(weights, i)
        elif kind == "lfm2":
            _lfm2_block(weights, i)
        else:
            _attention_block(weights, i, kind)
    # llama.cpp knows the last norm of LFM2 by the name that its first files had
    weights.vector("token_embd_norm.weight" if kind == "lfm2" else "output_norm.weight", N_EMBD)
    weights.matrix("output.weight", n_vocab, N_EMBD, gain=3.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
