"""The output of the Responses API: items, and the events that tell how they grow.

An answer is thoughts, text and calls of functions; each run of one kind is an item. The whole response that is sent
without a stream is that of the last event, so that there is one way to make it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from localspec.chat_format.api import Delta, ToolDelta
from localspec.server.answers import Answers, End, Piece
from localspec.server.errors import Problem
from localspec.server.openai.common import report
from localspec.server.openai.logprobs import of_chat
from localspec.server.openai.responses_input import ResponseRequest
from localspec.serving.api import TokenLogprob

Event = dict[str, Any]
#: types of items -> that of their only part, which the events about it are named after
_PARTS = {"message": "output_text", "reasoning": "reasoning_text"}


class Writer:
    """Makes the events of one response, numbered from 0."""

    def __init__(self, answers: Answers, body: ResponseRequest) -> None:
        self._answers, self._body = answers, body
        self._n_events = 0
        self._output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._tool = -1
        self._pending: list[TokenLogprob] = []

    def begin(self) -> Iterator[Event]:
        """The events before there is any output."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response("in_progress"))

    def piece(self, piece: Piece) -> Iterator[Event]:
        """More of the answer."""
        self._pending += piece.logprobs
        for delta in piece.deltas:
            yield from self._delta(delta)
        if piece.deltas:
            # those of thoughts and calls are told nowhere
            self._pending.clear()

    def end(self, end: End) -> Iterator[Event]:
        """The answer is whole."""
        if not self._output:
            yield from self._begin_item("message")
        yield from self._end_item()
        kind = "incomplete" if end.finish_reason == "length" else "completed"
        response = {**self._response(kind), "usage": self._usage(end), **report(end)}
        if self._answers.warnings:
            response["warnings"] = self._answers.warnings
        yield self._event(f"response.{kind}", response=response)

    def failed(self, problem: Problem) -> Event:
        """The answer ends here, with an error."""
        response = self._response("failed")
        response["error"] = {"code": "server_error", "message": problem.message}
        return self._event("response.failed", response=response)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._n_events += 1
        return {"type": kind, "sequence_number": self._n_events - 1, **fields}

    def _delta(self, delta: Delta) -> Iterator[Event]:
        if delta.reasoning:
            yield from self._text("reasoning", delta.reasoning)
        if delta.content:
            yield from self._text("message", delta.content)
        if delta.tool is not None:
            yield from self._call(delta.tool)

    def _text(self, kind: str, text: str) -> Iterator[Event]:
        if self._open is None or self._open["type"] != kind:
            yield from self._begin_item(kind)
        part = self._part()
        part["text"] += text
        told: dict[str, Any] = {"delta": text}
        if kind == "message":
            told["logprobs"] = of_chat(self._pending)["content"]
            part["logprobs"] += told["logprobs"]
            self._pending.clear()
        yield self._event(f"response.{_PARTS[kind]}.delta", **self._place(), content_index=0, **told)

    def _call(self, tool: ToolDelta) -> Iterator[Event]:
        if self._open is None or self._open["type"] != "function_call" or self._tool != tool.index:
            yield from self._begin_item("function_call", call_id=tool.id or "", name=tool.name or "", arguments="")
            self._tool = tool.index
        if tool.arguments and self._open is not None:
            self._open["arguments"] += tool.arguments
            yield self._event("response.function_call_arguments.delta", **self._place(), delta=tool.arguments)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self._output[-1]["content"][0]
        return part

    def _begin_item(self, kind: str, **fields: Any) -> Iterator[Event]:
        yield from self._end_item()
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        if kind == "message":
            fields = {"role": "assistant", "content": []}
        elif kind == "reasoning":
            fields = {"summary": [], "content": []}
        name = f"{prefix}_{self._answers.id}_{len(self._output)}"
        self._open = {"id": name, "type": kind, "status": "in_progress", **fields}
        self._output.append(self._open)
        index = len(self._output) - 1
        yield self._event("response.output_item.added", output_index=index, item=_copy(self._open))
        if kind in _PARTS:
            extra: dict[str, Any] = {"annotations": [], "logprobs": []} if kind == "message" else {}
            self._open["content"].append({"type": _PARTS[kind], "text": "", **extra})
            part = dict(self._part())
            yield self._event("response.content_part.added", **self._place(), content_index=0, part=part)

    def _end_item(self) -> Iterator[Event]:
        item = self._open
        if item is None:
            return
        item["status"] = "completed"
        if item["type"] == "function_call":
            told = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **self._place(), **told)
        else:
            part = self._part()
            told = {"text": part["text"], **({"logprobs": part["logprobs"]} if item["type"] == "message" else {})}
            yield self._event(f"response.{_PARTS[item['type']]}.done", **self._place(), content_index=0, **told)
            yield self._event("response.content_part.done", **self._place(), content_index=0, part=dict(part))
        yield self._event("response.output_item.done", output_index=len(self._output) - 1, item=_copy(item))
        self._open = None

    def _usage(self, end: End) -> dict[str, Any]:
        usage = self._answers.usage([end])
        n_prompt, n_cached = end.ended.stats.n_prompt, end.ended.stats.n_cached
        # thoughts are counted as the tokens of their text: which token began them is not known
        thoughts = self._answers.engine.tokenize(end.reply.reasoning, add_special=False) if end.reply.reasoning else ()
        return {
            "input_tokens": n_prompt,
            "input_tokens_details": {"cached_tokens": n_cached, "cache_write_tokens": n_prompt - n_cached},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": min(len(thoughts), usage["completion_tokens"])},
            "total_tokens": usage["total_tokens"],
        }

    def _response(self, status: str) -> dict[str, Any]:
        answers, body = self._answers, self._body
        sampling = answers.ask.sampling
        return {
            "id": f"resp_{answers.id}",
            "object": "response",
            "created_at": answers.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": answers.ask.max_tokens,
            "metadata": body.metadata or {},
            "model": answers.model,
            "output": [_copy(item) for item in self._output],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "store": False,
            "temperature": sampling.temperature,
            "text": {"format": _dumped(body.text.format) if body.text and body.text.format else {"type": "text"}},
            "tool_choice": _dumped(body.tool_choice) if body.tool_choice else "auto",
            "tools": [_dumped(tool) for tool in body.tools or ()],
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "usage": None,
        }


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    parts: Sequence[dict[str, Any]] | None = item.get("content")
    return dict(item) if parts is None else {**item, "content": [dict(part) for part in parts]}


def _dumped(model: Any) -> Any:
    if isinstance(model, str):
        return model
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)
