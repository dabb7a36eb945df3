"""llama_cpp's Python interface over localspec: the same names and arguments, with speculation behind them.

Where a program imports `Llama` itself, only the import changes:

    import localspec as llama_cpp          # instead of: import llama_cpp
    from localspec import Llama            # instead of: from llama_cpp import Llama

Where a library imports it (LangChain, llama-index), `install` puts it there, before that library is imported:

    import localspec.dropin
    localspec.dropin.install()
    from langchain_community.llms import LlamaCpp

Names that are not localspec's own (`LlamaGrammar`, `LogitsProcessorList`, `GGML_TYPE_Q8_0`...) are those of llama_cpp,
which is imported when one of them is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from localspec.dropin.swap import install, installed, uninstall

if TYPE_CHECKING:
    from localspec.dropin.llama import Llama

__all__ = ["Llama", "install", "installed", "uninstall"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("Llama", "llama"):  # the module too: llama_cpp has one of this name
        llama = importlib.import_module("localspec.dropin.llama")
        return llama if name == "llama" else llama.Llama
    import llama_cpp

    try:
        return getattr(llama_cpp, name)
    except AttributeError:
        raise AttributeError(f"neither {__name__} nor llama_cpp has {name!r}") from None
