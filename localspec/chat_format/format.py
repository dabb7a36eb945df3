"""The chat format of a model, by llama.cpp's own chat code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from localspec.chat import CHATML
from localspec.chat_format import native
from localspec.chat_format.api import ChatPrompt, ChatRequest, ReplyReader
from localspec.chat_format.messages import messages_of, schema_of, tools_of, values_of
from localspec.chat_format.reader import ContentReader, NativeReader
from localspec.engine.params import GrammarStart, Thoughts, Trigger
from localspec.errors import UsageError

#: the metadata of a template that some models have beside their own, for requests with tools
_TOOL_TEMPLATE = "tokenizer.chat_template.tool_use"

#: where anything but content is looked for, it is looked for in this
_BRACKETS = ' \n<a>{"b": [1]}</a>\n '


class ChatModel(Protocol):
    """The part of `engine.model.Model` that chat formats need."""

    chat_template: str | None
    bos: int | None
    eos: int | None
    metadata: Mapping[str, str]

    def tokenize(self, text: str, add_special: bool = ..., parse_special: bool = ...) -> list[int]: ...

    def special_text(self, token: int | None) -> str: ...


class NativeFormat:
    """A `ChatFormat` with tools and thoughts, as llama.cpp reads them from the model's template.

    Raises `UsageError` for a template that cannot be used.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._bos, self._eos = (model.special_text(token) for token in (model.bos, model.eos))
        self._template = native.Template(model.chat_template or CHATML, self._bos, self._eos)
        self._stops = () if model.chat_template else ("<|im_end|>",)
        with_tools = model.metadata.get(_TOOL_TEMPLATE)
        self._with_tools = native.Template(with_tools, self._bos, self._eos) if with_tools else self._template
        able = self._with_tools.abilities
        self.has_tools = able["supports_tools"] or able["supports_tool_calls"]

    def apply(self, request: ChatRequest) -> ChatPrompt:
        """See `ChatFormat`."""
        messages, (tools, choice) = messages_of(request), tools_of(request)
        if tools and choice != "none":
            self._check_tools(request, choice)
        template = self._with_tools if tools else self._template
        told, parser = template.apply(_native_request(request, messages, tools, choice))
        grammar = request.grammar or told["grammar"] or None
        return ChatPrompt(
            text=told["prompt"],
            grammar=grammar,
            grammar_start=None if request.grammar or grammar is None else self._start(told),
            preserved=self._preserved(told["preserved_tokens"]),
            stops=(*self._stops, *told["additional_stops"]),
            state=None if told["plain"] or _is_content(told, parser, tools) else parser,
        )

    def reader(self, prompt: ChatPrompt) -> ReplyReader:
        """See `ChatFormat`."""
        return ContentReader() if prompt.state is None else NativeReader(prompt.state)

    def _check_tools(self, request: ChatRequest, choice: str) -> None:
        if not self.has_tools:
            raise UsageError("the model's chat template has no tools", "leave them out, or choose another model")
        if request.grammar is not None or (choice == "required" and request.json_schema is not None):
            raise UsageError("tools and a grammar for the answer exclude each other", "leave one of them out")

    def _start(self, told: Mapping[str, Any]) -> GrammarStart:
        """Where the grammar of a template begins: with a tool call, or with what the prompt ends with."""
        if told["grammar_lazy"]:
            triggers = tuple(self._trigger(trigger, told) for trigger in told["grammar_triggers"])
            return GrammarStart(triggers=triggers, thoughts=_thoughts(told))
        return GrammarStart(prefill=self._prefill(told["generation_prompt"]))

    def _trigger(self, trigger: Mapping[str, str], told: Mapping[str, Any]) -> Trigger:
        kind, value = trigger["type"], trigger["value"]
        if kind == "word" and value in told["preserved_tokens"] and (token := self._one_token(value)) is not None:
            return Trigger("token", value, token)
        return Trigger(kind, value)  # type: ignore[arg-type]  # the library's names are those of `Trigger`

    def _prefill(self, text: str) -> tuple[int, ...]:
        """The tokens of the end of the prompt, which a grammar that is not lazy begins with."""
        tokens = self._model.tokenize(text, add_special=False, parse_special=True)
        # some tokenizers put a space before the first special token
        if tokens and not text[:1].isspace() and self._model.special_text(tokens[0]).isspace():
            del tokens[0]
        return tuple(tokens)

    def _preserved(self, texts: Sequence[str]) -> frozenset[int]:
        tokens = (self._one_token(text) for text in texts)
        return frozenset(token for token in tokens if token is not None)

    def _one_token(self, text: str) -> int | None:
        """The token of a text that is one."""
        tokens = self._model.tokenize(text, add_special=False, parse_special=True)
        return tokens[0] if len(tokens) == 1 else None


def _native_request(
    request: ChatRequest, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], choice: str
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "messages": messages,
        "tool_choice": choice,
        "parallel_tool_calls": request.parallel_tool_calls,
        "reasoning_format": request.reasoning_format,
        "enable_thinking": request.enable_thinking,
        "add_generation_prompt": request.add_generation_prompt and not request.continue_final_message,
        "chat_template_kwargs": values_of(request),
    }
    if tools:
        made["tools"] = tools
    if request.json_schema is not None:
        made["json_schema"] = schema_of(request.json_schema)
    if request.continue_final_message:
        if messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
            raise UsageError("only a text of the assistant can be continued", "end with a message of the assistant")
        made["continue_final_message"] = True
    return made


def _is_content(told: Mapping[str, Any], parser: native.Parser, tools: Sequence[object]) -> bool:
    """Whether all of a reply is its content, so that nothing has to be parsed: no call was offered, there are no marks,
    and the parser takes a text with all sorts of brackets as it is."""
    if tools or told["preserved_tokens"] or told["thinking_start_tag"]:
        return False
    try:
        read = parser.parse(_BRACKETS, is_partial=True)
    except native.UnparsedError:
        return False
    return bool(read["content"] == _BRACKETS and not read["reasoning_content"])


def _thoughts(told: Mapping[str, Any]) -> Thoughts | None:
    """The marks of thoughts, and whether the prompt ends within them."""
    start, ends, prompt = told["thinking_start_tag"], tuple(told["thinking_end_tags"]), told["generation_prompt"]
    if not start or not ends:
        return None
    begun = prompt.rfind(start)
    return Thoughts(start, ends, begun >= 0 and not any(end in prompt[begun + len(start) :] for end in ends))
