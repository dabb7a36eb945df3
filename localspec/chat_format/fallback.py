"""Chat formats without llama.cpp's chat code: prompts by Jinja, and all of a reply is content."""

from __future__ import annotations

from localspec.chat import ChatTemplate
from localspec.chat_format.api import ChatPrompt, ChatRequest, ReplyReader
from localspec.chat_format.format import ChatModel
from localspec.chat_format.messages import messages_of, schema_of, tools_of, values_of
from localspec.chat_format.reader import ContentReader
from localspec.engine.grammar import schema_to_gbnf
from localspec.errors import UsageError


class PlainFormat:
    """A `ChatFormat` for a llama-cpp-python without patches. Raises `UsageError` for a template that is not valid."""

    def __init__(self, model: ChatModel) -> None:
        bos, eos = (model.special_text(token) for token in (model.bos, model.eos))
        self._template = ChatTemplate(model.chat_template, bos=bos, eos=eos)

    def apply(self, request: ChatRequest) -> ChatPrompt:
        """See `ChatFormat`. Tools are refused."""
        messages, (tools, choice) = messages_of(request), tools_of(request)
        if tools and choice != "none":
            raise UsageError("tools need localspec's build of llama-cpp-python", "pip install ./ggml_patches")
        if request.continue_final_message:
            raise UsageError("a message can be continued with localspec's build alone", "pip install ./ggml_patches")
        grammar = request.grammar
        if request.json_schema is not None:
            grammar = schema_to_gbnf(schema_of(request.json_schema))
        values = {"enable_thinking": request.enable_thinking, **values_of(request)}
        for message in messages:
            if message["role"] == "developer":
                message["role"] = "system"
        text = self._template.render(messages, add_generation_prompt=request.add_generation_prompt, **values)
        return ChatPrompt(text=text, grammar=grammar, stops=self._template.stops)

    def reader(self, prompt: ChatPrompt) -> ReplyReader:
        """See `ChatFormat`."""
        return ContentReader()
