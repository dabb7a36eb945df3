"""From the arguments of a call to a request to an engine, and to what makes results of its updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localspec.chat_format.api import ChatPrompt
from localspec.dropin.calls import ChatCall, CompletionCall, check_logprobs, room, sampling_of, stops_of
from localspec.dropin.chat import Chat, chat_request
from localspec.dropin.completion import Completion
from localspec.dropin.errors import CallError, as_llama_cpp
from localspec.dropin.opening import Card
from localspec.dropin.options import LlamaOptions
from localspec.engine.params import SamplingParams
from localspec.server import fim
from localspec.serving.api import Engine, Request


class Asking:
    """Makes requests to `engine`; `model` is what results call it unless the call says otherwise."""

    def __init__(self, engine: Engine, card: Card, options: LlamaOptions, model: str) -> None:
        self._engine, self._card, self._options, self._model = engine, card, options, model

    def completion(self, call: CompletionCall, seed: int) -> tuple[Request, Completion]:
        """Raises `CallError`."""
        if call.echo and call.logprobs is not None:
            raise CallError("echo and logprobs exclude each other: those of a prompt are not computed")
        check_logprobs(call.logprobs)
        tokens = self._tokens(call)
        request = self._request(call, tokens, sampling_of(call, seed, self._options.last_n_tokens_size), call.logprobs)
        text = call.prompt if isinstance(call.prompt, str) else self._text(tokens) if call.echo else ""
        requested = call.speculation or self._options.speculation
        return request, Completion(call.model or self._model, text, call.echo, call.logprobs is not None, requested)

    def chat(self, call: ChatCall, seed: int) -> tuple[Request, Chat]:
        """Raises `CallError`, also for what the model's template refuses."""
        top = (call.top_logprobs or 0) if call.logprobs else None
        check_logprobs(top)
        sampling = sampling_of(call, seed, self._options.last_n_tokens_size)
        with as_llama_cpp():
            prompt = self._engine.chat.apply(chat_request(call, self._options.reasoning_format))
        request = self._request(call, self._chat_tokens(prompt), prompt.constrained(sampling), top)
        request = replace(
            request, stops=tuple(dict.fromkeys((*request.stops, *prompt.stops))), preserved=prompt.preserved
        )
        reader = self._engine.chat.reader(prompt)
        requested = call.speculation or self._options.speculation
        legacy = call.functions is not None
        return request, Chat(call.model or self._model, reader, top is not None, legacy, requested)

    def _request(
        self, call: CompletionCall | ChatCall, tokens: Sequence[int], sampling: SamplingParams, top: int | None
    ) -> Request:
        from localspec.serving.methods import asked

        with as_llama_cpp():
            speculation = asked(call.speculation or self._options.speculation, self._engine.facts.methods)
        return Request(
            prompt=tokens,
            sampling=sampling,
            max_tokens=room(call.max_tokens),
            stops=stops_of(call.stop),
            method=speculation.method,
            accept=call.accept or speculation.accept,
            top_logprobs=top,
        )

    def _tokens(self, call: CompletionCall) -> list[int]:
        """The tokens of the prompt; an empty text is the token that begins texts. Raises `CallError` without one."""
        prompt = call.prompt
        if call.suffix is not None:
            with as_llama_cpp():
                return fim.tokens(self._engine, prompt, call.suffix)
        tokens = self._engine.tokenize(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
        if not tokens and self._card.bos >= 0:
            return [self._card.bos]
        if not tokens:
            raise CallError("the prompt is empty, and the model has no token that begins a text")
        return tokens

    def _chat_tokens(self, prompt: ChatPrompt) -> list[int]:
        bos = self._engine.facts.bos
        # templates often write it themselves
        return self._engine.tokenize(prompt.text, add_special=not (bos and prompt.text.startswith(bos)))

    def _text(self, tokens: Sequence[int]) -> str:
        return b"".join(self._engine.piece(token, special=False) for token in tokens).decode("utf-8", "ignore")
