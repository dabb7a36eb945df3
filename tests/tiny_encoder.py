"""A tiny encoder with random weights, such as models for embeddings are: BERT, written as GGUF."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_EMBD, N_HEAD, N_FF, N_LAYER, N_CTX_TRAIN = 64, 2, 128, 2, 96
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581the", "\u2581tree", "\u2581of", "\u2581words", "s", "ing"]


def write_tiny_encoder(path: Path, seed: int = 1, pooling: gguf.PoolingType = gguf.PoolingType.MEAN) -> Path:
    """Write the model and return `path`."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("tiny-bert")
    writer.add_block_count(N_LAYER)
    writer.add_context_length(N_CTX_TRAIN)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(WORDS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 4 + [gguf.TokenType.NORMAL] * (len(WORDS) - 4))
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)

    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def affine(name: str, n_out: int, n_in: int | None = None) -> None:
        """A matrix with a bias, or a norm."""
        if n_in is None:
            writer.add_tensor(f"{name}.weight", np.ones(n_out, dtype=np.float32))
        else:
            weight(name, n_out, n_in)
        writer.add_tensor(f"{name}.bias", (0.1 * rng.standard_normal(n_out)).astype(np.float32))

    weight("token_embd", len(WORDS), N_EMBD)
    weight("position_embd", N_CTX_TRAIN, N_EMBD)
    weight("token_types", 2, N_EMBD)
    affine("token_embd_norm", N_EMBD)
    for i in range(N_LAYER):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            affine(f"blk.{i}.{name}", N_EMBD, N_EMBD)
        affine(f"blk.{i}.attn_output_norm", N_EMBD)
        affine(f"blk.{i}.ffn_up", N_FF, N_EMBD)
        affine(f"blk.{i}.ffn_down", N_EMBD, N_FF)
        affine(f"blk.{i}.layer_output_norm", N_EMBD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
