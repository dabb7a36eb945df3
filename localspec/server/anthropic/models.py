"""/v1/models as Anthropic's clients read it; they say who they are by a header."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from fastapi import Request

from localspec.server.anthropic.schemas import Model, ModelList
from localspec.serving.api import Available


def wanted(request: Request) -> bool:
    """Whether the client is one of Anthropic's API."""
    return "anthropic-version" in request.headers


def described(model: Available) -> Model:
    created = datetime.fromtimestamp(model.created, timezone.utc).isoformat().replace("+00:00", "Z")
    return Model(id=model.name, display_name=model.name, created_at=created)


def listed(models: Sequence[Available]) -> ModelList:
    """All of them on one page."""
    data = [described(model) for model in models]
    return ModelList(data=data, first_id=data[0].id if data else None, last_id=data[-1].id if data else None)
