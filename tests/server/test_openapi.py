"""The description of the routes is that of the routes, and the file is that of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from localspec.server import openapi
from tests.server.client import Client

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


def outline(described: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the versions of FastAPI and pydantic: routes, answers, fields."""
    routes = {
        f"{method} {path}": sorted(operation["responses"])
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    }
    schemas = described["components"]["schemas"]
    return {"routes": routes, "fields": {name: sorted(each.get("properties", ())) for name, each in schemas.items()}}


def test_the_file_is_that_of_today() -> None:
    now = json.loads(openapi.text())
    hint = "python -m localspec.server.openapi docs/openapi.json writes it"
    assert outline(json.loads(FILE.read_text(encoding="utf-8"))) == outline(now), hint


def test_what_is_served_is_the_same() -> None:
    assert Client().get("/openapi.json").json() == json.loads(openapi.text())


def test_errors_are_described_for_every_route() -> None:
    described = json.loads(openapi.text())
    for operations in described["paths"].values():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            assert {"4XX", "5XX"} <= operation["responses"].keys()
    assert "HTTPValidationError" not in described["components"]["schemas"]


def test_bounds_are_those_of_json_schema() -> None:
    fields = json.loads(openapi.text())["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    assert {"type": "integer", "minimum": 0, "maximum": 20} in fields["top_logprobs"]["anyOf"]
