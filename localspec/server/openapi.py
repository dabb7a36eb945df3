"""The description of all routes, as one OpenAPI file: `python -m localspec.server.openapi FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from localspec.paths import atomic_write_text
from localspec.server.errors import Shape, openai_shape, shape_of
from localspec.server.openai import replies

DESCRIPTION = (
    "A local server for language models, with speculative decoding: OpenAI's API, and what desktop apps use of those "
    "of Ollama, llama.cpp, Anthropic and LM Studio. Fields that are not described are passed over with a warning."
)
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI object of an app. FastAPI's own says of every route that it answers 422, which none does."""
    made = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    for operations in made["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    schemas = made.get("components", {}).get("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _describe_errors(made["paths"], schemas)
    made["components"] = {**made.get("components", {}), "securitySchemes": _KEYS}
    made["security"] = [{}, *({name: []} for name in _KEYS)]
    return made


def _describe_errors(paths: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Errors have the shape that goes with the path; a route of the same shape may have described it."""
    body = replies.ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**body.pop("$defs"), "ErrorBody": body}
    described: dict[Shape, Any] = {openai_shape: {"$ref": "#/components/schemas/ErrorBody"}}
    for path, operations in paths.items():
        for operation in operations.values():
            if "400" in operation["responses"]:
                content = operation["responses"]["400"]["content"]
                described.setdefault(shape_of(path), content["application/json"]["schema"])
    for path, operations in paths.items():
        for operation in operations.values():
            content = {"application/json": {"schema": described[shape_of(path)]}}
            for status, words in (("4XX", "The request cannot be answered"), ("5XX", "Nor can it now")):
                operation["responses"].setdefault(status, {"description": words, "content": content})


def install(app: FastAPI) -> None:
    """Let `/openapi.json` be what `describe` makes."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def text() -> str:
    """The file."""
    from localspec.server.app import create_app

    # routes are described without a look at the models
    app = create_app(cast(Any, None))
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    atomic_write_text(Path(sys.argv[1]), text())
