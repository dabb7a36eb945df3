"""Which chat format a model gets."""

from __future__ import annotations

import threading
import weakref

from localspec.chat_format import native
from localspec.chat_format.api import ChatFormat
from localspec.chat_format.fallback import PlainFormat
from localspec.chat_format.format import ChatModel, NativeFormat

_lock = threading.Lock()
_formats: weakref.WeakKeyDictionary[ChatModel, ChatFormat] = weakref.WeakKeyDictionary()


def chat_format(model: ChatModel) -> ChatFormat:
    """The chat format of a model, made once: llama.cpp's where it is installed. Raises `UsageError` for a template that
    cannot be used."""
    with _lock:
        found = _formats.get(model)
        if found is None:
            found = _formats[model] = PlainFormat(model) if native.library() is None else NativeFormat(model)
        return found
