"""The application: all routers behind the guard.

`app.state` has `host` (`serving.api.Host`), `settings`, `metrics` and `running`, the `Answers` under way.
"""

from __future__ import annotations

from fastapi import FastAPI

from localspec import __version__
from localspec.server import anthropic, errors, health, llamacpp, lmstudio, metrics, ollama, openapi
from localspec.server.openai import chat, completions, embeddings, models, responses
from localspec.server.security import Guard
from localspec.server.settings import Settings
from localspec.serving.api import Host

ROUTERS = (health.router, metrics.router, llamacpp.router, ollama.router, anthropic.router, lmstudio.router)
OPENAI = (chat.router, completions.router, embeddings.router, models.router, responses.router)


def create_app(host: Host, settings: Settings | None = None) -> FastAPI:
    """The ASGI application that serves the models of `host`."""
    settings = settings or Settings()
    app = FastAPI(title="localspec", version=__version__, docs_url=None, redoc_url=None)
    app.state.host, app.state.settings = host, settings
    app.state.metrics, app.state.running = metrics.Metrics(host), set()
    for router in ROUTERS:
        app.include_router(router)
    for router in OPENAI:
        app.include_router(router, prefix="/v1")
        # apps differ in whether the /v1 is part of the address that their users give
        app.include_router(router, include_in_schema=False)
    errors.install(app)
    openapi.install(app)
    app.add_middleware(Guard, settings=settings)
    return app
