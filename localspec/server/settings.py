"""How the server behaves, and what a request may ask for at most."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.engine.params import SamplingParams

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8080
#: names that stand for the model that the server was started with
DEFAULT_NAMES = frozenset({"", "default", "local", "localspec"})


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The most that one request may hold. Sizes are bytes, lengths characters."""

    body: int = 16 << 20
    messages: int = 4096
    tools: int = 256
    #: answers to one request: prompts times `n`
    answers: int = 16
    prompts: int = 256
    max_tokens: int = 1 << 20
    stops: int = 64
    stop_length: int = 512
    logit_bias: int = 2048
    schema: int = 256 << 10
    #: levels of objects and lists, in a schema as in a whole body
    depth: int = 64
    grammar: int = 128 << 10
    inputs: int = 2048


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the server behaves. Times are seconds.

    `host_names` are names beside those of this machine that it is reached by; `origins` are the web pages that may call
    it, such as "http://localhost:3000", with "*" for any. With `any_model` a model that is not known is the default
    one. `timeout` is for one answer, `write_timeout` for a client that does not read. `grace` is how long answers may
    go on once the server is asked to end.
    """

    api_keys: tuple[str, ...] = ()
    host_names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    any_model: bool = False
    sampling: SamplingParams = field(default_factory=SamplingParams)
    timeout: float | None = 3600.0
    header_timeout: float = 30.0
    body_timeout: float = 60.0
    write_timeout: float = 60.0
    keep_alive: float = 15.0
    grace: float = 10.0
    bounds: Bounds = field(default_factory=Bounds)
