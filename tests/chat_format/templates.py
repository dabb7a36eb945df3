"""Small chat templates of the families that models follow, and a model that has one."""

from __future__ import annotations

import pytest

from localspec.chat_format import native

_TURNS = """\
{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
{{- raise_exception('no role ' ~ message.role ~ ' here') -}}
{%- endif -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{{- '\\n<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' -}}
{{- (call.function.arguments if call.function.arguments is string else call.function.arguments | tojson) -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
"""
_TOOLS = """\
{%- if tools -%}
{{- '<|im_start|>system\\nTools, to be called within <tool_call></tool_call>:' -}}
{%- for tool in tools -%}{{- '\\n' ~ (tool | tojson) -}}{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
"""
_END = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"

#: no tools
PLAIN = _TURNS.split("{%- for call")[0] + "{{- '<|im_end|>\\n' -}}{%- endfor -%}" + _END
#: as Qwen2.5 and Hermes: calls are JSON between tags
TAGGED = _TOOLS + _TURNS + _END
#: as Qwen3: the same, after thoughts
THINKING = (
    _TOOLS
    + _TURNS.replace(
        "(message.content or '') -}}",
        "('<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' if message.reasoning_content else '')"
        " ~ (message.content or '') -}}",
    )
    + (
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
        "{%- if enable_thinking is defined and not enable_thinking -%}"
        "{{- '<think>\\n\\n</think>\\n\\n' -}}"
        "{%- endif -%}"
        "{%- endif -%}"
    )
)
#: as Llama 3: a call is the whole reply
BARE = """\
{{- bos_token -}}
{%- if tools -%}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nAnswer with {"name": function, "parameters": {}} to call:' -}}
{%- for tool in tools -%}{{- '\\n' ~ (tool | tojson) -}}{%- endfor -%}
{{- '<|eot_id|>' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' -}}
{%- if message.tool_calls -%}
{%- set call = message.tool_calls[0].function -%}
{{- '{"name": "' ~ call.name ~ '", "parameters": ' ~ (call.arguments | tojson) ~ '}' -}}
{%- else -%}
{{- message.content -}}
{%- endif -%}
{{- '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}
"""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_weather_time",
        "description": "When it was measured",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

USER = {"role": "user", "content": "How is the weather in Paris?"}

needs_library = pytest.mark.skipif(
    native.library() is None, reason="llama.cpp's chat code is not installed: pip install ./ggml_patches"
)


class FakeModel:
    """A model of bytes, with some special tokens from 256 on."""

    specials = ("<s>", "</s>", "<tool_call>", "</tool_call>")

    def __init__(self, template: str | None, **metadata: str) -> None:
        self.chat_template = template
        self.bos: int | None = 256
        self.eos: int | None = 257
        self.metadata = metadata

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        tokens = [256] if add_special else []
        while text:
            found = next((s for s in self.specials if parse_special and text.startswith(s)), None)
            if found is None:
                tokens += text[0].encode()
                text = text[1:]
            else:
                tokens.append(256 + self.specials.index(found))
                text = text[len(found) :]
        return tokens

    def special_text(self, token: int | None) -> str:
        if token is None:
            return ""
        return self.specials[token - 256] if token >= 256 else chr(token)
