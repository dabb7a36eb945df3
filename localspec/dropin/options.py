"""The options that a `llama_cpp.Llama` is made with: which of them hold here, and what becomes of the others."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from localspec.chat_format.api import ReasoningFormat
from localspec.dropin.errors import CallError
from localspec.dropin.telling import tell
from localspec.engine.params import CACHE_TYPES, ContextParams
from localspec.serving.api import Engine

#: "pick a seed", for llama.cpp
RANDOM_SEED = 0xFFFFFFFF
#: a batch must hold a tree of drafts, whatever size people chose for prompts
_LEAST_BATCH = 512
_POOLING_UNSPECIFIED, _POOLING_MEAN = -1, 1
#: the rope base that langchain-community passes unasked
_LANGCHAIN_ROPE_BASE = 10000.0


@dataclass(slots=True, kw_only=True)
class LlamaOptions:
    """Options of `localspec.Llama`: those of `llama_cpp.Llama`, then those of localspec alone.

    Honoured as there: `n_gpu_layers`, `use_mmap`, `seed`, `n_ctx` (0: that of the model's
    training; None: the same, but 8192 at most), `n_batch` (batches
    for trees of drafts stay large enough), `n_ubatch`, `n_threads`, `n_threads_batch`, `flash_attn` (None: on),
    `type_k` and `type_v` (numbers of ggml or names), `last_n_tokens_size`, `chat_format`, `chat_handler`.
    `logits_all` and `embedding` are not needed: log-probabilities and embeddings are always there. `verbose` changes
    nothing: what the library reports goes to the logger "localspec.native".

    `speculation` is the method of requests that name none: "auto", "off", "entmtp", "ptd", "fly", "lookup" or "draft".
    `draft` is a second model that drafts, a name or a path; `heads` are files of draft heads. `n_parallel` requests are
    decoded at once, each with `n_ctx` tokens; others wait. `reasoning_format` "auto" takes the thoughts of a reply out
    of its content. `engine` is a loaded model to use instead of `model_path`.
    """

    n_gpu_layers: int = 0
    split_mode: int = 1
    main_gpu: int = 0
    tensor_split: Sequence[float] | None = None
    vocab_only: bool = False
    use_mmap: bool = True
    use_mlock: bool = False
    kv_overrides: Mapping[str, bool | int | float | str] | None = None
    seed: int = RANDOM_SEED
    n_ctx: int | None = 512
    n_batch: int = 512
    n_ubatch: int = 512
    n_threads: int | None = None
    n_threads_batch: int | None = None
    rope_scaling_type: int | None = -1
    pooling_type: int = _POOLING_UNSPECIFIED
    attention_type: int = -1
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_orig_ctx: int = 0
    logits_all: bool = False
    embedding: bool = False
    offload_kqv: bool = True
    flash_attn: bool | None = None
    op_offload: bool | None = None
    swa_full: bool | None = None
    no_perf: bool = False
    last_n_tokens_size: int = 64
    lora_base: str | None = None
    lora_scale: float = 1.0
    lora_path: str | None = None
    numa: bool | int = False
    chat_format: str | None = None
    chat_handler: Any = None
    draft_model: Any = None
    tokenizer: Any = None
    type_k: int | str | None = None
    type_v: int | str | None = None
    spm_infill: bool = False
    verbose: bool = True

    speculation: str | None = None
    draft: str | Path | None = None
    heads: Sequence[str | Path] = ()
    n_parallel: int = 1
    reasoning_format: ReasoningFormat = "none"
    engine: Engine | None = field(default=None, repr=False)


#: what changes the text, so that a model without it is another one -> the way out
_REFUSED = {
    "vocab_only": "localspec.engine.weightless opens a model without its weights",
    "kv_overrides": "write the values into the GGUF file, as with gguf-py's gguf-set-metadata",
    "rope_scaling_type": "the model's own is used",
    "attention_type": "the model's own is used",
    "rope_freq_base": "the model's own is used; leave it at 0",
    "rope_freq_scale": "the model's own is used; leave it at 0",
    "yarn_ext_factor": "the model's own is used",
    "yarn_attn_factor": "the model's own is used",
    "yarn_beta_fast": "the model's own is used",
    "yarn_beta_slow": "the model's own is used",
    "yarn_orig_ctx": "the model's own is used",
    "lora_base": "merge the adapter into the model with llama.cpp's llama-export-lora",
    "lora_path": "merge the adapter into the model with llama.cpp's llama-export-lora",
    "tokenizer": "the tokenizer of the GGUF file is used",
    "pooling_type": "embeddings are averaged over the text; leave it out",
    "spm_infill": "the suffix comes after the prefix; write the model's own tokens into the prompt",
}
#: what changes speed or place at most -> what happens instead
_IGNORED = {
    "split_mode": "llama.cpp's default is used",
    "main_gpu": "llama.cpp's default is used",
    "tensor_split": "llama.cpp's default is used",
    "use_mlock": "the model may be swapped out",
    "offload_kqv": "the K/V cache lies where the layers do",
    "op_offload": "llama.cpp's default is used",
    "swa_full": "localspec's own is used",
    "numa": "llama.cpp's default is used",
    "draft_model": "localspec drafts by itself; see `speculation`, or `draft` for a second model",
}
#: options of old versions, at values that ask for nothing
_OUTGROWN: dict[str, tuple[Any, ...]] = {"f16_kv": (True, False), "n_parts": (-1,), "device": (None,)}


def read_options(given: Mapping[str, Any]) -> LlamaOptions:
    """The options of a call. Raises `CallError` for what cannot be honoured and would change the text, warns of the
    rest."""
    names = [each.name for each in fields(LlamaOptions)]
    known = {name: value for name, value in given.items() if name in names}
    for name, value in given.items():
        if name not in known and value not in _OUTGROWN.get(name, ()):
            close = difflib.get_close_matches(name, names, 1)
            tell(f"the option {name}={value!r} is ignored: there is none" + (f"; is it {close[0]}?" if close else ""))
    options = LlamaOptions(**known)
    neutral = LlamaOptions()
    for name, way_out in _REFUSED.items():
        value = getattr(options, name)
        if value not in (getattr(neutral, name), *_also_neutral(name)):
            raise CallError(f"{name}={value!r} cannot be honoured", way_out)
    for name, instead in _IGNORED.items():
        value = getattr(options, name)
        if value is not None and value != getattr(neutral, name):
            tell(f"the option {name} is ignored: {instead}")
    if options.rope_freq_base == _LANGCHAIN_ROPE_BASE:
        tell("rope_freq_base=10000.0 is ignored: the model's own is used")
    return options


def _also_neutral(name: str) -> tuple[Any, ...]:
    return {
        "rope_freq_base": (_LANGCHAIN_ROPE_BASE,),
        "rope_freq_scale": (1.0,),
        "rope_scaling_type": (None,),
        "yarn_ext_factor": (0.0,),
        "pooling_type": (_POOLING_MEAN,),
    }.get(name, ())


def context_params(options: LlamaOptions) -> ContextParams:
    """The parameters of a context, but for its size."""
    return ContextParams(
        n_batch=max(options.n_batch, _LEAST_BATCH),
        n_ubatch=max(min(options.n_batch, options.n_ubatch), _LEAST_BATCH),
        n_threads=options.n_threads,
        n_threads_batch=options.n_threads_batch,
        flash_attn=options.flash_attn is not False,
        type_k=_cache_type("type_k", options.type_k),
        type_v=_cache_type("type_v", options.type_v),
    )


def _cache_type(option: str, given: int | str | None) -> str:
    for name, (number, _) in CACHE_TYPES.items():
        if given in (number, name):
            return name
    if given is None:
        return "f16"
    names = ", ".join(f"{name} ({number})" for name, (number, _) in CACHE_TYPES.items())
    raise CallError(f"{option} is {given!r}, not a cache type", f"one of {names}")
