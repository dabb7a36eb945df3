"""Chat templates: from messages to the text, and the tokens, that a model was trained to read.

A template comes with a model file, so it is a program of unknown origin: it runs in Jinja's immutable sandbox, with
caps on its length, on the size of what it makes and on its time. This module knows nothing of decoding.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from localspec.errors import UsageError

log = logging.getLogger(__name__)

MAX_TEMPLATE_CHARS = 1 << 18
MAX_OUTPUT_CHARS = 1 << 24
MAX_SECONDS = 5.0

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

Message = Mapping[str, Any]

_WIDE_FORMAT = re.compile(r"\d{5,}|\*")


class Tokenizer(Protocol):
    """The part of a model that chat needs."""

    def tokenize(self, text: str, add_special: bool = ..., parse_special: bool = ...) -> list[int]: ...


class _TemplateRefusal(Exception):
    """Raised by the template itself, through raise_exception."""


def _raise_exception(message: object) -> NoReturn:
    raise _TemplateRefusal(str(message))


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which a model never saw in training
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, and no way to make a huge string or number with one operator."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str | bytes) and _WIDE_FORMAT.search(str(left)):
            raise SecurityError("the template pads text to a huge width")
        if operator == "**" and not (isinstance(right, int | float) and abs(right) <= 64):
            raise SecurityError("the template makes a huge number")
        if operator == "*" and _repeat_length(left, right) > MAX_OUTPUT_CHARS:
            raise SecurityError("the template repeats something too often")
        return super().call_binop(context, operator, left, right)


def _repeat_length(left: Any, right: Any) -> int:
    """The length of `left * right` when one of them is a sequence, else 0."""
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | bytes | list | tuple) and isinstance(count, int):
            return len(sequence) * count
    return 0


class ChatTemplate:
    """One compiled chat template.

    `stops` are strings that end an answer although the model may not know them as end tokens. Raises `UsageError` when
    the template is too long or is not valid Jinja.
    """

    def __init__(self, source: str | None, bos: str = "", eos: str = "") -> None:
        self.stops: tuple[str, ...] = ()
        if not source:
            log.warning("the model has no chat template: ChatML is used")
            source, self.stops = CHATML, ("<|im_end|>",)
        if len(source) > MAX_TEMPLATE_CHARS:
            raise UsageError(
                f"the model's chat template has {len(source)} characters, more than {MAX_TEMPLATE_CHARS}",
                "use raw prompts (generate --raw)",
            )
        self.bos, self.eos = bos, eos
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise UsageError(
                f"the model's chat template is not valid: {_one_line(error)}", "use raw prompts (generate --raw)"
            ) from error

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **values: Any) -> str:
        """The prompt for `messages` ({"role", "content"}); `values` reach the template under their names.

        Raises `UsageError` with the template's own words when it refuses the messages, such as roles out of order.
        """
        chunks: list[str] = []
        size, end = 0, time.monotonic() + MAX_SECONDS
        try:
            for chunk in self._template.generate(
                messages=[{**message, "content": message.get("content") or ""} for message in messages],
                add_generation_prompt=add_generation_prompt,
                bos_token=self.bos,
                eos_token=self.eos,
                **values,
            ):
                size += len(chunk)
                if size > MAX_OUTPUT_CHARS or time.monotonic() > end:
                    raise SecurityError(f"it makes more than {MAX_OUTPUT_CHARS} characters or takes too long")
                chunks.append(chunk)
        except _TemplateRefusal as error:
            raise UsageError(f"the model's chat template refuses these messages: {_one_line(error)}") from error
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            raise UsageError(
                f"the model's chat template fails on these messages: {_one_line(error)}",
                "use raw prompts (generate --raw)",
            ) from error
        return "".join(chunks)


def chat_tokens(model: Tokenizer, template: ChatTemplate, messages: Sequence[Message]) -> list[int]:
    """The tokens of the rendered `messages`, with one BOS at most."""
    text = template.render(messages)
    has_bos = bool(template.bos) and text.startswith(template.bos)
    return model.tokenize(text, add_special=not has_bos, parse_special=True)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
