"""localspec: tree-based speculative decoding on llama.cpp, measured on the machine it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.dropin.llama import Llama as Llama

__version__ = "0.1.0"

_LLAMA_CPP_NAMES = frozenset(
    {
        "BaseLlamaCache",
        "BaseLlamaTokenizer",
        "Llama",
        "LlamaCache",
        "LlamaDiskCache",
        "LlamaDraftModel",
        "LlamaGrammar",
        "LlamaRAMCache",
        "LlamaState",
        "LlamaTokenizer",
        "LogitsProcessor",
        "LogitsProcessorList",
        "MinTokensLogitsProcessor",
        "StoppingCriteria",
        "StoppingCriteriaList",
        "llama_chat_format",
        "llama_cpp",
        "llama_grammar",
        "llama_speculative",
        "llama_types",
    }
)


def __getattr__(name: str) -> Any:
    # `import localspec as llama_cpp`: the names of llama_cpp, without loading anything before one is asked for
    if name in _LLAMA_CPP_NAMES or name.startswith(("LLAMA_", "GGML_")):
        from localspec import dropin

        return getattr(dropin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
