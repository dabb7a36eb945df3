"""The openai library, which holds every reply against its own types (`_strict_response_validation`).

In two places its types are not those of what it asks for: embeddings come as base64 unless it is told otherwise, and
of the chunks of a completion only the last has a finish reason. There it is lenient.
"""

from __future__ import annotations

from typing import Any

import openai
from common import KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", _strict_response_validation=True)
lenient = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
chat = client.chat.completions


class Person(BaseModel):
    name: str
    age: int


def ask(text: str, **options: Any) -> Any:
    return chat.create(model=MODEL, messages=user(text), **options)


def answer(text: str, **options: Any) -> dict[str, Any]:
    reply = ask(text, **options)
    choice = reply.choices[0]
    return {"text": choice.message.content, "finish": choice.finish_reason, "model": reply.model}


def pieces(text: str, **options: Any) -> dict[str, Any]:
    """A stream, and the error that it ended with."""
    texts, finishes, usages, n_after, error = [], [], [], 0, None
    try:
        for chunk in ask(text, stream=True, **options):
            usages += [chunk.usage.model_dump()] if chunk.usage else []
            for choice in chunk.choices:
                n_after += bool(finishes)
                texts += [choice.delta.content] if choice.delta.content else []
                finishes += [choice.finish_reason] if choice.finish_reason else []
    except openai.APIError as problem:
        error = described(problem)
    return {
        "text": "".join(texts), "n": len(texts), "finish": finishes, "usage": usages, "after": n_after, "error": error,
    }  # fmt: skip


def calls(message: Any) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or ()
    ]


def tools(text: str = "call the weather") -> Any:
    return calls(ask(text, tools=[WEATHER]).choices[0].message)


def tools_stream() -> Any:
    with chat.stream(model=MODEL, messages=user("call both"), tools=[WEATHER]) as stream:
        done = [event.name for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    return {
        "calls": calls(final.message), "done": done, "text": final.message.content, "finish": final.finish_reason,
    }  # fmt: skip


def tool_loop() -> str:
    messages = user("call the weather")
    message = chat.create(model=MODEL, messages=messages, tools=[WEATHER]).choices[0].message
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21 degrees"}]
    return chat.create(model=MODEL, messages=messages, tools=[WEATHER]).choices[0].message.content


def thoughts() -> dict[str, Any]:
    message = ask("think").choices[0].message
    deltas = [chunk.choices[0].delta for chunk in ask("think", stream=True) if chunk.choices]
    return {
        "content": message.content,
        "reasoning": message.reasoning_content,
        "streamed": "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
    }


def parse() -> dict[str, Any]:
    whole = chat.parse(model=MODEL, messages=user("describe a person"), response_format=Person)
    with chat.stream(model=MODEL, messages=user("describe a person"), response_format=Person) as stream:
        streamed = stream.get_final_completion()
    return {
        "whole": whole.choices[0].message.parsed.model_dump(),
        "streamed": streamed.choices[0].message.parsed.model_dump(),
    }


def logprobs() -> dict[str, Any]:
    content = ask("say hey", logprobs=True, top_logprobs=2).choices[0].logprobs.content
    streamed = [
        entry.token
        for chunk in ask("say hey", logprobs=True, top_logprobs=2, stream=True)
        for choice in chunk.choices
        if choice.logprobs
        for entry in choice.logprobs.content
    ]
    return {
        "tokens": [entry.token for entry in content],
        "bytes": [entry.bytes for entry in content],
        "top": [len(entry.top_logprobs) for entry in content],
        "streamed": streamed,
    }


def full() -> dict[str, Any]:
    try:
        lenient.chat.completions.create(model=MODEL, messages=user("full"))
    except openai.APIStatusError as error:
        return {**described(error), "retry_after": error.response.headers.get("retry-after")}
    raise RuntimeError("it was not full")


def nulls() -> str:
    """Fields that may be left out, told as null, as some clients do."""
    names = "stop temperature top_p seed tools tool_choice response_format stream_options logit_bias user n max_tokens"
    return ask("say hello", extra_body=dict.fromkeys(names.split())).choices[0].message.content


def extras() -> dict[str, Any]:
    reply = ask("say hello", extra_body={"speculation": {"method": "off"}})
    return {"timings": reply.timings, "speculation": reply.speculation, "usage": reply.usage.model_dump()}


def embeddings() -> dict[str, Any]:
    one = lenient.embeddings.create(model=MODEL, input="hello")
    two = client.embeddings.create(model=MODEL, input=["hello", "you"], encoding_format="float")
    return {
        "same": max(abs(a - b) for a, b in zip(one.data[0].embedding, two.data[0].embedding, strict=True)) < 1e-6,
        "indices": [item.index for item in two.data],
        "tokens": two.usage.total_tokens,
    }


def completions() -> dict[str, Any]:
    whole = client.completions.create(model=MODEL, prompt=["say one", "say two"], max_tokens=16)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(lenient.completions.create(model=MODEL, prompt="say one", **options))
    return {
        "texts": [choice.text for choice in whole.choices],
        "streamed": "".join(chunk.choices[0].text for chunk in chunks if chunk.choices),
        "usage": chunks[-1].usage.completion_tokens,
    }


def responses() -> dict[str, Any]:
    reply = client.responses.create(model=MODEL, input="say hello", instructions="Be brief.")
    with client.responses.stream(model=MODEL, input="say hello") as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    return {
        "text": reply.output_text,
        "status": reply.status,
        "usage": reply.usage.output_tokens,
        "streamed": final.output_text,
        "types": types,
    }


def responses_tools() -> dict[str, Any]:
    tool = {"type": "function", **WEATHER["function"], "strict": False}
    call = next(item for item in client.responses.create(model=MODEL, input="call the weather", tools=[tool]).output)
    with client.responses.stream(model=MODEL, input="call the weather", tools=[tool]) as stream:
        streamed = next(item for item in stream.get_final_response().output if item.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    messages = [*user("call the weather"), call.model_dump(exclude_none=True), result]
    after = client.responses.create(model=MODEL, input=messages, tools=[tool])
    return {
        "name": call.name, "arguments": call.arguments, "streamed": streamed.arguments, "after": after.output_text,
    }  # fmt: skip


def responses_parse() -> dict[str, Any]:
    reply = client.responses.parse(model=MODEL, input="describe a person", text_format=Person)
    return reply.output_parsed.model_dump()


def responses_broken() -> dict[str, Any]:
    types = []
    try:
        for event in client.responses.create(model=MODEL, input="break", stream=True):
            types.append(event.type)
    except openai.APIError as problem:
        types.append(type(problem).__name__)
    return {"types": types}


def with_key(key: str) -> str:
    keyed = openai.OpenAI(base_url=f"{KEYED_URL}/v1", api_key=key, max_retries=0)
    return keyed.chat.completions.create(model=MODEL, messages=user("say hello")).choices[0].message.content


run(
    {
        "models": lambda: [model.id for model in client.models.list()],
        "model": lambda: client.models.retrieve(MODEL).id,
        "chat": lambda: answer("say hello"),
        "stream": lambda: pieces("say hello"),
        "usage": lambda: pieces("say hello", stream_options={"include_usage": True}),
        "tools": tools,
        "too_long": lambda: answer(TOO_LONG),
        "busy": lambda: answer("busy openai"),
        "full": full,
        "broken": lambda: pieces("break"),
        "wrong_key": lambda: with_key("wrong"),
        "right_key": lambda: with_key(KEY),
        "embeddings": embeddings,
        "unusual": lambda: {"whole": answer("unusual")["text"], "streamed": pieces("unusual")["text"]},
        "stop": lambda: pieces("say one STOP two", stop=["STOP", "never"]),
        "length": lambda: answer("count", max_tokens=7),
        "length_new_name": lambda: pieces("count", max_completion_tokens=7),
        "n": lambda: sorted(choice.index for choice in ask("say hello", n=2).choices),
        "developer": lambda: chat.create(
            model=MODEL, messages=[{"role": "developer", "content": "Be brief."}, *user("say hello")]
        ).choices[0].message.content,
        "parts": lambda: chat.create(
            model=MODEL, messages=[{"role": "user", "content": [{"type": "text", "text": "say hello"}]}]
        ).choices[0].message.content,
        "tools_stream": tools_stream,
        "tool_loop": tool_loop,
        "thoughts": thoughts,
        "parse": parse,
        "logprobs": logprobs,
        "nulls": nulls,
        "extras": extras,
        "bad_parameter": lambda: ask("say hello", temperature=-3),
        "bad_roles": lambda: chat.create(model=MODEL, messages=user("say a") + user("say b")),
        "unknown_model": lambda: client.chat.completions.create(model="not-here", messages=user("say hello")),
        "completions": completions,
        "responses": responses,
        "responses_tools": responses_tools,
        "responses_parse": responses_parse,
        "responses_broken": responses_broken,
    }
)  # fmt: skip
