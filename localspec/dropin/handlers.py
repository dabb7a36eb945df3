"""Chat formats of llama_cpp, for those who name one or bring a handler: they run over `create_completion`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from localspec.dropin.calls import ChatCall
from localspec.dropin.errors import CallError
from localspec.dropin.opening import Card
from localspec.dropin.options import LlamaOptions

Handler = Callable[..., Any]

#: the name that llama_cpp has for the template in the model file
DEFAULT_FORMAT = "chat_template.default"
#: classes of llama_cpp's handlers that read images
_SEEING = {"Llava15ChatHandler", "MTMDChatHandler"}


def handler_of(options: LlamaOptions, card: Card) -> Handler | None:
    """The handler that the options ask for; None for the model's own format, which localspec reads itself.

    Raises `CallError` for a format that there is not, and for handlers that read images.
    """
    handler, name = options.chat_handler, options.chat_format
    if handler is not None:
        if _SEEING & {each.__name__ for each in type(handler).__mro__}:
            raise CallError(f"{type(handler).__name__} reads images; localspec reads text", "leave chat_handler out")
        return _checked(handler)
    if name is None or name == DEFAULT_FORMAT:
        return None
    if name.startswith("chat_template."):
        return _of_template(name, card)
    return _of_name(name)


def _checked(handler: Any) -> Handler:
    if not callable(handler):
        raise CallError(f"chat_handler is a {type(handler).__name__}, which cannot be called")
    return handler


def _of_template(name: str, card: Card) -> Handler:
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = card.metadata.get(f"tokenizer.{name}")
    if template is None:
        raise CallError(f"the model has no {name}", "leave chat_format out for its own template")
    formatter = Jinja2ChatFormatter(template, card.eos_text, card.bos_text, stop_token_ids=[card.eos])
    return formatter.to_chat_handler()


def _of_name(name: str) -> Handler:
    from llama_cpp.llama_chat_format import (
        LlamaChatCompletionHandlerNotFoundException,
        LlamaChatCompletionHandlerRegistry,
    )

    try:
        return LlamaChatCompletionHandlerRegistry().get_chat_completion_handler_by_name(name)
    except LlamaChatCompletionHandlerNotFoundException as error:
        raise CallError(f"there is no chat_format {name!r}", str(error).partition("(")[2].rstrip(")")) from None


def run(handler: Handler, llama: Any, call: ChatCall) -> Any:
    """What the handler answers. Raises `CallError` for what handlers know nothing of."""
    if call.speculation is not None or call.accept is not None:
        raise CallError("with a chat_format or chat_handler, speculation is chosen when the Llama is made")
    given = {each.name: getattr(call, each.name) for each in fields(ChatCall)}
    del given["speculation"], given["accept"]
    # handlers add to it
    given["stop"] = [call.stop] if isinstance(call.stop, str) else list(call.stop or ())
    return handler(llama=llama, **given)
