"""Grammars of the sampler chain: GBNF and JSON schemas, checked before the library's parser sees them."""

from __future__ import annotations

import ctypes
import json
import re
from typing import Any

from llama_cpp import llama_cpp as L

from localspec.chat_format import native
from localspec.engine import bindings, logs
from localspec.engine.model import Model
from localspec.engine.params import GrammarStart, SamplingParams, Trigger
from localspec.errors import UsageError

_MAX_GRAMMAR_SIZE = 1 << 20
_MAX_GRAMMAR_RULES = 8192
_MAX_GRAMMAR_DEPTH = 256
_REGEX_SPECIAL = re.compile(r"[.^$|()*+?\[\]{}\\]")
#: literals, character classes and comments of GBNF: parentheses there are plain characters
_GRAMMAR_ATOMS = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*', re.DOTALL)


def new_grammar(model: Model, params: SamplingParams) -> Any:
    """The native sampler of the grammar or schema in `params`, one of which there is. Raises `UsageError`."""
    if params.json_schema is not None:
        source, what = schema_to_gbnf(params.json_schema), "json_schema"
    else:
        source, what = params.grammar or "", "grammar"
    if not source.strip():
        raise UsageError("grammar is empty", "leave it out to sample without one")
    _refuse_unparsable(source, what)
    # The parser reports to stderr, the checks after it to the log.
    mark = logs.n_errors()
    with logs.captured_stderr() as printed:
        sampler = _native(model, source.encode("utf-8", "replace"), params.grammar_start)
    if not sampler:
        parsed = next((line for line in printed if "error parsing grammar: " in line), None)
        reason = parsed.partition("error parsing grammar: ")[2] if parsed else logs.reason(mark, "unknown reason")
        raise UsageError(f"{what} cannot be used: {_shorten(reason)}")
    return sampler


def _native(model: Model, source: bytes, start: GrammarStart | None) -> Any:
    """The sampler, NULL for a grammar that is none."""
    if start is None or not start.triggers:
        return L.llama_sampler_init_grammar(model.vocab, source, b"root")
    if bindings.library() is None:  # the stock library ends the process when a trigger is not how the grammar begins
        raise UsageError("grammars that begin later need localspec's build", "pip install ./ggml_patches")
    patterns = [_pattern(trigger).encode("utf-8", "replace") for trigger in start.triggers if trigger.kind != "token"]
    tokens = [trigger.token for trigger in start.triggers if trigger.kind == "token" and trigger.token is not None]
    return L.llama_sampler_init_grammar_lazy_patterns(
        model.vocab,
        source,
        b"root",
        (ctypes.c_char_p * len(patterns))(*patterns),
        len(patterns),
        (L.llama_token * len(tokens))(*tokens),
        len(tokens),
    )


def _pattern(trigger: Trigger) -> str:
    """The regular expression of a trigger, in the dialect of C++."""
    if trigger.kind == "word":
        return _REGEX_SPECIAL.sub(r"\\\g<0>", trigger.value)
    if trigger.kind == "pattern_full":
        return "^" + trigger.value.removeprefix("^").removesuffix("$") + "$"
    return trigger.value


def _refuse_unparsable(source: str, what: str) -> None:
    """Refuse what would overflow the stack of the library's recursive parser."""
    if "\0" in source:
        raise UsageError(f"{what} holds a NUL character")
    if len(source) > _MAX_GRAMMAR_SIZE or source.count("::=") > _MAX_GRAMMAR_RULES:
        raise UsageError(
            f"{what} is too large: {len(source)} characters, {source.count('::=')} rules",
            f"at most {_MAX_GRAMMAR_SIZE} characters and {_MAX_GRAMMAR_RULES} rules",
        )
    depth = 0
    for bracket in re.findall(r"[()]", _GRAMMAR_ATOMS.sub("", source)):
        depth += 1 if bracket == "(" else -1
        if depth > _MAX_GRAMMAR_DEPTH:
            raise UsageError(f"{what} nests more than {_MAX_GRAMMAR_DEPTH} groups")


def schema_to_gbnf(schema: dict[str, Any] | str) -> str:
    """The GBNF of a JSON schema. Raises `UsageError` for what is not one, or uses what GBNF cannot say."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if not isinstance(json.loads(text), dict):
            raise ValueError("a schema is an object")
        return native.schema_to_grammar(text) if native.library() else str(json_schema_to_gbnf(text))
    except UsageError:
        raise
    except Exception as error:  # the converter raises whatever its Python happens to hit
        raise UsageError(f"json_schema cannot be used: {_shorten(str(error) or type(error).__name__)}") from None


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."
