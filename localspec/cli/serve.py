"""`localspec serve`: a local server that speaks OpenAI's API and those of its neighbours."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from localspec.cli import streams
from localspec.cli.models import size_text
from localspec.cli.options import EngineOptions, LogOptions, MethodOptions, SamplingOptions, read_text, with_options
from localspec.errors import LocalspecError, ModelNotFoundError, UsageError

if TYPE_CHECKING:
    from localspec.engine.params import SamplingParams
    from localspec.server.run import ServedHost
    from localspec.server.settings import Settings
    from localspec.serving.opening import SessionOpener

NETWORK, LIMITS, DEFAULTS = "Network and access", "Limits", "Sampling of requests that do not say"

EPILOG = """Examples:

localspec serve

localspec serve -m qwen2.5-coder-1.5b-instruct --port 9000 --parallel 2

localspec serve --host 0.0.0.0 --api-key-file keys.txt

localspec serve --origin app://obsidian.md

Apps are given the address http://127.0.0.1:8080/v1 and any key, or the one that was set. Ctrl-c ends the server: once
to let answers end first, twice to end them as well.
"""


@dataclass
class NetworkOptions:
    """Where the server is reached, and by whom."""

    host: Annotated[
        str, Option("--host", help="Address to listen on; others than this machine's own need a key.",
                    rich_help_panel=NETWORK)
    ] = "127.0.0.1"  # fmt: skip
    port: Annotated[int, Option("--port", "-p", min=0, max=65535, help="0 takes a free one.",
                                rich_help_panel=NETWORK)] = 8080  # fmt: skip
    api_key: Annotated[
        str | None,
        Option("--api-key", metavar="KEY", envvar="LOCALSPEC_API_KEY", show_envvar=True,
               help="Ask for this key; others see it in the list of processes, so better in the environment.",
               rich_help_panel=NETWORK),
    ] = None  # fmt: skip
    api_key_file: Annotated[
        Path | None,
        Option("--api-key-file", metavar="FILE", help="Ask for one of the keys in FILE, one a line.",
               rich_help_panel=NETWORK),
    ] = None  # fmt: skip
    origin: Annotated[
        list[str] | None,
        Option("--origin", metavar="ORIGIN", help="Let pages of ORIGIN call, such as http://localhost:3000; '*' is "
               "any, and needs a key; can be repeated.", rich_help_panel=NETWORK),
    ] = None  # fmt: skip
    host_name: Annotated[
        list[str] | None,
        Option("--host-name", metavar="NAME", help="A further name that the server is reached by, as behind a proxy; "
               "can be repeated.", rich_help_panel=NETWORK),
    ] = None  # fmt: skip

    def keys(self) -> tuple[str, ...]:
        """The keys of which one is asked for. Raises `UsageError`."""
        keys = [self.api_key] if self.api_key else []
        if self.api_key_file is not None:
            lines = [line.strip() for line in read_text(self.api_key_file, "list of keys").splitlines()]
            found = [line for line in lines if line and not line.startswith("#")]
            if not found:
                raise UsageError(f"there is no key in {self.api_key_file}", "write one on a line of its own")
            keys += found
        for key in keys:
            if not (key.isascii() and key.isprintable() and " " not in key):
                raise UsageError("an API key has characters that a request cannot carry", "letters and digits are fine")
        return tuple(keys)

    def check(self) -> None:
        """Raise `UsageError` for what would let anybody in."""
        from localspec.server.hosts import ANY, is_loopback

        if self.keys():
            return
        if not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} lets other machines in, and there is no key",
                "set LOCALSPEC_API_KEY, or leave out --host to serve this machine alone",
            )
        if ANY in (self.origin or ()):
            raise UsageError("--origin '*' lets any page in, and there is no key", "set LOCALSPEC_API_KEY")


@dataclass
class ServeLimits:
    """How much it takes on."""

    parallel: Annotated[
        int, Option("--parallel", min=1, max=64, help="Requests answered at once; each has a context of --ctx-size.",
                    rich_help_panel=LIMITS)
    ] = 4  # fmt: skip
    queue: Annotated[
        int, Option("--queue", min=1, max=10_000, help="Requests that wait at most; more are told to come again.",
                    rich_help_panel=LIMITS)
    ] = 64  # fmt: skip
    timeout: Annotated[
        float, Option("--timeout", min=1, help="Seconds for one answer, waiting included.", rich_help_panel=LIMITS)
    ] = 3600.0
    idle_unload: Annotated[
        float | None,
        Option("--idle-unload", min=0, metavar="SECONDS", help="Unload models that nobody used for so long; by default "
               "the one of --model stays and others go after 300 s.", show_default=False, rich_help_panel=LIMITS),
    ] = None  # fmt: skip
    memory: Annotated[
        str | None,
        Option("--memory", metavar="SIZE", help="Most memory for all models, such as 6G; by default what is free.",
               rich_help_panel=LIMITS),
    ] = None  # fmt: skip
    grace: Annotated[
        float, Option("--grace", min=0, help="Seconds that answers may go on when the server is asked to end.",
                      rich_help_panel=LIMITS)
    ] = 10.0  # fmt: skip

    def memory_limit(self) -> int | None:
        """Bytes. Raises `UsageError`."""
        return None if self.memory is None else size(self.memory)


@dataclass
class DefaultSampling:
    """The sampler chain where a request does not say."""

    temp: Annotated[float, Option("--temp", help="0 always takes the best token.", rich_help_panel=DEFAULTS)] = 0.8
    top_k: Annotated[int, Option("--top-k", help="0 turns it off.", rich_help_panel=DEFAULTS)] = 40
    top_p: Annotated[float, Option("--top-p", help="1 turns it off.", rich_help_panel=DEFAULTS)] = 0.95
    min_p: Annotated[float, Option("--min-p", help="0 turns it off.", rich_help_panel=DEFAULTS)] = 0.05
    repeat_penalty: Annotated[float, Option("--repeat-penalty", help="1 turns it off.", rich_help_panel=DEFAULTS)] = 1.0

    def sampling(self) -> SamplingParams:
        """The parameters. Raises `UsageError`."""
        return SamplingOptions(
            temp=self.temp, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, repeat_penalty=self.repeat_penalty
        ).sampling()


def size(text: str) -> int:
    """Bytes of a size as people write it: 6G, 512M, 1.5GiB. Raises `UsageError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip().lower())
    if match is None or not float(match[1]):
        raise UsageError(f"--memory {text!r} is not a size", "write it like 6G")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))


def register(app: typer.Typer) -> None:
    app.command("serve", epilog=EPILOG)(serve)


@with_options
def serve(
    engine: EngineOptions,
    how: MethodOptions,
    network: NetworkOptions,
    limits: ServeLimits,
    defaults: DefaultSampling,
    logs: LogOptions,
    any_model: Annotated[
        bool, Option("--any-model", help="Answer requests for models that are not here with the default one.")
    ] = False,
    estimate: Annotated[bool, Option("--estimate", help="Tell how much memory the model would take, and end.")] = False,
    strict: Annotated[
        bool, Option("--strict", help="Fail when --heads or --draft cannot be used, rather than do without.")
    ] = False,
) -> None:
    """Serve models to apps on this machine: OpenAI's, Ollama's, llama.cpp's and Anthropic's API."""
    network.check()
    settings = settings_of(network, limits, defaults, any_model)
    logs.set_up()
    from localspec.server.app import create_app
    from localspec.server.run import listen
    from localspec.server.run import serve as run

    if estimate:
        typer.echo(estimated(make_opener(engine, how, limits, strict), engine.model))
        return
    host = make_host(engine, how, limits, strict)
    with listen(network.host, network.port) as listener:
        url = _url(network.host, listener.getsockname()[1])
        run(
            create_app(host, settings),
            listener,
            on_start=lambda: streams.say(_greeting(url, bool(settings.api_keys))),
            on_ready=lambda: streams.say(_ready(host)),
            on_failure=lambda error: _goes_on(error, engine.model),
        )


def settings_of(network: NetworkOptions, limits: ServeLimits, defaults: DefaultSampling, any_model: bool) -> Settings:
    """The settings of the server. Raises `UsageError`."""
    from localspec.server.hosts import check_origin
    from localspec.server.settings import Settings

    names = [*(network.host_name or ()), network.host]
    return Settings(
        api_keys=network.keys(),
        host_names=tuple(name for name in names if name not in ("0.0.0.0", "::", "")),
        origins=tuple(check_origin(origin) for origin in network.origin or ()),
        any_model=any_model,
        sampling=defaults.sampling(),
        timeout=limits.timeout,
        grace=limits.grace,
    )


def make_host(engine: EngineOptions, how: MethodOptions, limits: ServeLimits, strict: bool) -> ServedHost:
    """The models of the process. Raises `UsageError` for options that cannot be used."""
    from localspec.serving.host import HostSettings, ModelHost

    settings = HostSettings(default=engine.model, memory_limit=limits.memory_limit())
    if limits.idle_unload is not None:
        settings = replace(settings, keep_default=limits.idle_unload, keep=limits.idle_unload)
    return ModelHost(make_opener(engine, how, limits, strict), settings)


def make_opener(engine: EngineOptions, how: MethodOptions, limits: ServeLimits, strict: bool) -> SessionOpener:
    """What opens the models. Raises `UsageError` for options that cannot be used."""
    from localspec.serving.opening import SessionOpener, Setup

    engine.drafting()  # refuses half of the options of a draft model
    setup = Setup(
        default=engine.model,
        n_slots=limits.parallel,
        n_ctx=engine.ctx_size or None,
        n_queue=limits.queue,
        context=replace(engine.context(), n_ctx=None),
        method=how.method,
        heads=tuple(engine.heads or ()),
        draft=engine.draft,
        draft_n_ctx=engine.draft_ctx_size,
        task=how.bank,
        n_gpu_layers=engine.gpu_layers,
        strict=strict,
    )
    return SessionOpener(setup)


def estimated(opener: SessionOpener, model: str | None) -> str:
    """How much memory a model would take, and how much there is. Raises `ModelError`."""
    from localspec import hub

    path = hub.find_model(model)
    free = opener.free()
    there = "" if free is None else f"; {size_text(free)} are free"
    return f"{hub.name_of(path)} would take {size_text(opener.need(path))}{there}"


def _url(host: str, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def _greeting(url: str, with_key: bool) -> str:
    key = "the key that you set" if with_key else "any key"
    return f"localspec serves at {url} (OpenAI's API at {url}/v1, with {key}); ctrl-c ends it"


def _ready(host: ServedHost) -> str:
    """The default model, and how it runs."""
    facts = host.loaded()[0].facts
    slots = f"{facts.n_slots} slot{'s' if facts.n_slots > 1 else ''} of {facts.n_ctx} tokens"
    return f"{facts.name} is ready: {facts.device}, {facts.mode}, {slots}, speculation {facts.method}"


def _goes_on(error: LocalspecError, wanted: str | None) -> bool:
    """Whether there is use for a server without its default model: others can be asked for by name, and downloaded."""
    if wanted is not None or not isinstance(error, ModelNotFoundError):
        return False
    streams.say(f"warning: there is no default model: {error}")
    return True
