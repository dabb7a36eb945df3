"""Which model a client means."""

from __future__ import annotations

from localspec.server.settings import DEFAULT_NAMES, Settings
from localspec.serving.api import Host


def resolve(host: Host, settings: Settings, name: str | None) -> str | None:
    """The name to give to `Host.use`: None for the default model, which any unknown name is with `any_model`."""
    if name is None or name in DEFAULT_NAMES:
        return None
    if settings.any_model and all(name != model.name for model in host.available()):
        return None
    return name
