"""llama.cpp's own chat code, through the C interface `llama-chat.h` of ggml_patches.

`library()` is the loaded library, None where the installed llama-cpp-python has none. The classes own what it makes.
Nothing here knows of models: a format is made from the text of a template. All of it is safe from any thread, and the
interpreter runs on while the library works.
"""

from __future__ import annotations

import ctypes
import json
import logging
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from localspec.errors import EngineError, UsageError

logger = logging.getLogger(__name__)

ABI = 1

_NAMES = ("libllama-chat.so", "libllama-chat.dylib", "llama-chat.dll")
_MAX_WORDS = 400
_TEMPLATE = "the model's chat template"

OK, INVALID, REFUSED, LIMIT, UNPARSED, FAILED = 0, -1, -2, -3, -4, -5

_handle = ctypes.c_void_p
_text = ctypes.c_char_p
_answer = ctypes.POINTER(ctypes.c_void_p)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_chat_string_free": (None, [ctypes.c_void_p]),
    "llama_chat_format_init": (ctypes.c_int32, [_text, _text, _text, ctypes.POINTER(_handle), _answer]),
    "llama_chat_format_free": (None, [_handle]),
    "llama_chat_caps": (ctypes.c_int32, [_handle, _answer]),
    "llama_chat_apply": (ctypes.c_int32, [_handle, _text, ctypes.POINTER(_handle), _answer]),
    "llama_chat_parser_free": (None, [_handle]),
    "llama_chat_parse": (ctypes.c_int32, [_handle, _text, ctypes.c_size_t, ctypes.c_bool, _answer]),
    "llama_chat_schema_to_grammar": (ctypes.c_int32, [_text, _answer]),
}


class UnparsedError(EngineError):
    """A text that is no reply of the format."""


@cache
def library() -> Any | None:
    """The library, or None."""
    from llama_cpp import llama_cpp

    folder = Path(llama_cpp._lib._name).parent
    found = next((p for name in _NAMES if (p := folder / name).is_file()), None)
    if found is None:
        return None
    try:
        lib = ctypes.CDLL(str(found))
        lib.llama_chat_abi.restype, lib.llama_chat_abi.argtypes = ctypes.c_int32, []
        abi = lib.llama_chat_abi()
    except (OSError, AttributeError) as error:
        logger.warning("llama.cpp's chat code cannot be loaded: %s", error)
        return None
    if abi != ABI:
        logger.warning(
            "the installed llama-cpp-python has chat interface %d, this version needs %d: no tool calls;"
            " reinstall ggml_patches of the same release",
            abi,
            ABI,
        )
        return None
    for name, (restype, argtypes) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = restype, argtypes
    return lib


class Template:
    """A compiled chat template. Raises `UsageError` for one that is not valid, or too large."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self._lib = _require()
        handle = _handle()
        _call(
            lambda answer: self._lib.llama_chat_format_init(
                _bytes(source), _bytes(bos), _bytes(eos), ctypes.byref(handle), answer
            ),
            _TEMPLATE,
        )
        self._pointer = handle
        self._free = weakref.finalize(self, self._lib.llama_chat_format_free, handle)

    @property
    def abilities(self) -> dict[str, bool]:
        """What the template can do: {"supports_tools": True, ...}."""
        found: dict[str, bool] = json.loads(
            _call(lambda answer: self._lib.llama_chat_caps(self._pointer, answer), _TEMPLATE)
        )
        return found

    def apply(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Parser]:
        """Render a request (see `llama-chat.h`). Returns what the library tells of it, and what reads the reply.

        Raises `UsageError`, with the template's own words when it refuses the messages.
        """
        handle = _handle()
        text = json.dumps(request, ensure_ascii=False)
        answer = _call(
            lambda out: self._lib.llama_chat_apply(self._pointer, _bytes(text), ctypes.byref(handle), out),
            _TEMPLATE,
        )
        return json.loads(answer), Parser(self._lib, handle)


class Parser:
    """Reads replies to one request."""

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib, self._pointer = lib, handle
        self._free = weakref.finalize(self, lib.llama_chat_parser_free, handle)

    def parse(self, text: str, is_partial: bool) -> dict[str, Any]:
        """{"content", "reasoning_content", "tool_calls": [{"id", "name", "arguments"}]} of a reply, or its beginning.

        Raises `UnparsedError` for a text that is no reply of the format.
        """
        data = text.encode("utf-8", "replace")
        answer = _call(
            lambda out: self._lib.llama_chat_parse(self._pointer, data, len(data), is_partial, out), "the reply"
        )
        message: dict[str, Any] = json.loads(answer)
        return message


def schema_to_grammar(schema: str) -> str:
    """The GBNF of a JSON schema, given as JSON text. Raises `UsageError` for what is none, or what GBNF cannot say."""
    lib = _require()
    return _call(lambda out: lib.llama_chat_schema_to_grammar(_bytes(schema), out), "json_schema").decode("utf-8")


def _require() -> Any:
    lib = library()
    if lib is None:
        raise EngineError("llama.cpp's chat code is not installed", "pip install ./ggml_patches")
    return lib


def _call(function: Callable[[Any], int], what: str) -> bytes:
    """What `function` writes, once freed. Raises for a status that is not OK."""
    out = ctypes.c_void_p()
    status = function(ctypes.byref(out))
    text = b""
    if out.value is not None:
        text = ctypes.string_at(out.value)
        _require().llama_chat_string_free(out)
    if status == OK:
        return text
    words = " ".join(text.decode("utf-8", "replace").split())
    words = words if len(words) <= _MAX_WORDS else words[: _MAX_WORDS - 3] + "..."
    if status == UNPARSED:
        raise UnparsedError(words)
    if status == REFUSED:
        raise UsageError(f"{what} refuses these messages: {words}")
    if status == INVALID and what == _TEMPLATE:  # it is about the request, not about the template
        raise UsageError(words)
    raise UsageError(f"{what} cannot be used: {words}")


def _bytes(text: str) -> bytes:
    if "\0" in text:
        raise UsageError("the text holds a NUL character")
    return text.encode("utf-8", "replace")
