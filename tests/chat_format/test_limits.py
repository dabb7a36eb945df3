"""What comes with models and requests cannot hang or end the process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from localspec.chat_format import native
from localspec.chat_format.api import ChatRequest
from localspec.chat_format.format import NativeFormat
from localspec.engine.grammar import schema_to_gbnf
from localspec.errors import UsageError
from tests.chat_format.hostile import ENDLESS, HOSTILE, ODD
from tests.chat_format.templates import TAGGED, USER, FakeModel, needs_library

pytestmark = needs_library

#: MiB: the process, and what a template may hold twice over
_MOST_MEMORY = 500


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="its memory is measured in the Unix way")
def test_hostile_templates_end_with_an_error() -> None:
    command = [sys.executable, "-m", "tests.chat_format.hostile"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    told = {line["name"]: line for line in map(json.loads, run.stdout.splitlines())}
    assert run.returncode == 0, run.stderr
    assert [*told] == [*HOSTILE, *ODD]
    assert [name for name in HOSTILE if "chat template cannot be used" not in told[name]["words"]] == []
    assert [name for name in ODD if told[name]["words"]] == []
    assert max(line["peak"] for line in told.values()) < _MOST_MEMORY
    assert run.stderr == ""


@pytest.mark.slow
def test_an_endless_template_ends_within_seconds() -> None:
    begin = time.thread_time()
    with pytest.raises(UsageError, match="cannot be used"):
        native.Template(ENDLESS).apply({"messages": [USER]})
    assert time.thread_time() - begin < 15


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def twice(depth: int) -> dict[str, Any]:
    """A schema of which each level is there twice."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": ["object", "object"], "properties": {"a": schema}}
    return schema


def chain(depth: int) -> dict[str, Any]:
    """Each definition refers twice to the next."""
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{depth}": {"type": "string"}}}


BAD_SCHEMAS: dict[str, Any] = {
    "deep": nested(100),
    "very deep": nested(400),
    "large": {"enum": ["x" * 100] * 1000},
    "twice": twice(24),
    "wide": {"type": "object", "properties": {f"p{i}": {} for i in range(300)}},
    "long name": {"type": "object", "properties": {"é" * 20_000: {}}},
    "long pattern": {"type": "string", "pattern": "^" + "a" * 2000 + "$"},
    "pattern": {"type": "string", "pattern": "no anchors"},
    "lookahead": {"type": "string", "pattern": "^(?=a)b$"},
    "remote": {"$ref": "https://example.org/schema"},
    "file": {"$ref": "file:///etc/passwd"},
    "circle": {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "no object": [],
    "no type": {"type": "nonsense"},
}


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_a_schema_that_cannot_be_followed_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        schema_to_gbnf(BAD_SCHEMAS[name])
    with pytest.raises(UsageError):
        NativeFormat(FakeModel(TAGGED)).apply(ChatRequest(messages=[USER], json_schema=BAD_SCHEMAS[name]))


@pytest.mark.parametrize(
    "schema",
    [nested(30), chain(100), {}, {"type": ["string", "null"]}],
    ids=["deep", "references", "anything", "types"],
)
def test_a_sane_schema_becomes_a_grammar(schema: dict[str, Any]) -> None:
    assert "root ::=" in schema_to_gbnf(schema)


def test_a_deep_request_is_refused() -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]
    with pytest.raises(UsageError, match="nests deeper"):
        NativeFormat(FakeModel(TAGGED)).apply(ChatRequest(messages=[USER], template_values={"x": value}))
