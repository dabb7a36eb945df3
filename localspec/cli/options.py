"""Options that several commands share, as dataclasses whose fields are Typer options.

`@with_options` replaces a command's parameters of these types by their fields, so that an option is written once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from localspec.cli.naming import named_as_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.prompts import Prompt
    from localspec.decode import Limits
    from localspec.engine.params import ContextParams, SamplingParams
    from localspec.loading import DraftRequest

SAMPLING, ENGINE, OUTPUT = "Sampling", "Model and engine", "Output and logs"


@dataclass
class EngineOptions:
    """Which model, and how it runs."""

    model: Annotated[
        str | None,
        Option(
            "--model", "-m", help="Name, path or OWNER/REPO/FILE.gguf; without it the default.", rich_help_panel=ENGINE
        ),
    ] = None
    ctx_size: Annotated[
        int | None,
        Option("--ctx-size", "-c", min=0, help="Context size in tokens; by default 8192 or what the model was "
               "trained for, if that is less.", rich_help_panel=ENGINE),
    ] = None  # fmt: skip
    threads: Annotated[int | None, Option("--threads", "-t", min=1, help="CPU threads.", rich_help_panel=ENGINE)] = None
    gpu_layers: Annotated[
        int, Option("--gpu-layers", help="Layers on the GPU; -1 for all.", rich_help_panel=ENGINE)
    ] = -1
    heads: Annotated[
        list[Path] | None,
        Option("--heads", metavar="FILE", help="Draft heads for the model (GGUF); Hydra and Medusa may be given both.",
               rich_help_panel=ENGINE),
    ] = None  # fmt: skip

    draft: Annotated[
        str | None,
        Option("--draft", metavar="MODEL", help="A small model with the same vocabulary that drafts for the model; a "
               "name or path.", rich_help_panel=ENGINE),
    ] = None  # fmt: skip
    draft_ctx_size: Annotated[
        int | None,
        Option("--draft-ctx-size", min=1, help="Context size of the draft model; by default that of the model. Longer "
               "texts get no drafts.", rich_help_panel=ENGINE),
    ] = None  # fmt: skip

    def context(self) -> ContextParams:
        """The context parameters. Raises `UsageError` for values that cannot be used."""
        from localspec.engine.params import ContextParams, check_gpu_layers

        params = ContextParams(n_ctx=self.ctx_size, n_threads=self.threads)
        with named_as_options():
            params.validate()
            check_gpu_layers(self.gpu_layers)
        return params

    def drafting(self) -> DraftRequest | None:
        """The draft model that was asked for. Raises `UsageError` for its context size without it."""
        from localspec.loading import DraftRequest

        if self.draft is None:
            if self.draft_ctx_size is not None:
                raise UsageError("--draft-ctx-size goes with --draft", "name the draft model: --draft MODEL")
            return None
        return DraftRequest(self.draft, self.draft_ctx_size)

    def refuse_draft(self) -> None:
        """Raise `UsageError` for a draft model where it would do nothing."""
        if self.draft is not None or self.draft_ctx_size is not None:
            raise UsageError("nothing is drafted by a second model here", "leave out --draft and --draft-ctx-size")


@dataclass
class MethodOptions:
    """How to speculate."""

    method: Annotated[
        str | None,
        Option("--method", help="auto (the default), ptd, heads, ptd+heads, lookup, or plain (no speculation); draft "
               "(the default with --draft); with a calibrated bank entmtp-star, entmtp-ladder, entmtp-tau or "
               "entmtp-value.", rich_help_panel=ENGINE),
    ] = None  # fmt: skip
    bank: Annotated[
        str | None,
        Option("--bank", help="Trees that were calibrated for this kind of text: chat, code, math or auto (the "
               "default). For the methods entmtp-star, -ladder, -tau and -value.", rich_help_panel=ENGINE),
    ] = None  # fmt: skip


@dataclass
class SamplingOptions:
    """The sampler chain."""

    seed: Annotated[int | None, Option("--seed", help="Same seed, same text.", rich_help_panel=SAMPLING)] = None
    temp: Annotated[float, Option("--temp", help="0 always takes the best token.", rich_help_panel=SAMPLING)] = 0.8
    top_k: Annotated[int, Option("--top-k", help="0 turns it off.", rich_help_panel=SAMPLING)] = 40
    top_p: Annotated[float, Option("--top-p", help="1 turns it off.", rich_help_panel=SAMPLING)] = 0.95
    min_p: Annotated[float, Option("--min-p", help="0 turns it off.", rich_help_panel=SAMPLING)] = 0.05
    typical: Annotated[float, Option("--typical", help="1 turns it off.", rich_help_panel=SAMPLING)] = 1.0
    repeat_penalty: Annotated[float, Option("--repeat-penalty", help="1 turns it off.", rich_help_panel=SAMPLING)] = 1.0
    presence_penalty: Annotated[
        float, Option("--presence-penalty", help="0 turns it off.", rich_help_panel=SAMPLING)
    ] = 0.0
    frequency_penalty: Annotated[
        float, Option("--frequency-penalty", help="0 turns it off.", rich_help_panel=SAMPLING)
    ] = 0.0
    logit_bias: Annotated[
        list[str] | None,
        Option("--logit-bias", metavar="ID=BIAS", help="Add BIAS to a token's logit (may be -inf); "
               "can be repeated.", rich_help_panel=SAMPLING),
    ] = None  # fmt: skip
    grammar: Annotated[
        Path | None, Option("--grammar", metavar="FILE", help="GBNF grammar.", rich_help_panel=SAMPLING)
    ] = None
    json_schema: Annotated[
        Path | None, Option("--json-schema", metavar="FILE", help="JSON schema.", rich_help_panel=SAMPLING)
    ] = None

    def sampling(self) -> SamplingParams:
        """The sampling parameters. Raises `UsageError` for values that cannot be used."""
        from localspec.engine.params import SamplingParams

        params = SamplingParams(
            temperature=self.temp,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical,
            repeat_penalty=self.repeat_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=dict(_bias(item) for item in self.logit_bias or ()),
            seed=self.seed,
            grammar=None if self.grammar is None else read_text(self.grammar, "grammar"),
            json_schema=None if self.json_schema is None else read_text(self.json_schema, "JSON schema"),
        )
        with named_as_options():
            params.validate()
        return params


def simple_sampling(temp: float, seed: int) -> SamplingParams:
    """The sampling of `bench` and `verify`. Raises `UsageError` for values that cannot be used."""
    return SamplingOptions(seed=seed, temp=temp).sampling()


@dataclass
class LimitOptions:
    """Where an answer ends."""

    max_tokens: Annotated[
        int | None,
        Option("--max-tokens", "-n", min=1, help="Most tokens of an answer; by default what the context holds.",
               rich_help_panel=SAMPLING),
    ] = None  # fmt: skip
    stop: Annotated[
        list[str] | None,
        Option("--stop", metavar="TEXT", help="End the answer before TEXT; can be repeated.",
               rich_help_panel=SAMPLING),
    ] = None  # fmt: skip

    def check_stops(self) -> None:
        """Raise `UsageError` for a stop string that would end every answer."""
        for stop in self.stop or ():
            if not stop:
                raise UsageError("a stop string is empty", "leave out --stop, or give it some text")

    def limits(self, stops: tuple[str, ...] = ()) -> Limits:
        """The limits, with `stops` beside those of the user."""
        from localspec.decode import Limits

        self.check_stops()
        return Limits(max_tokens=self.max_tokens, stops=(*(self.stop or ()), *stops))


@dataclass
class PromptOptions:
    """Which prompts to measure or verify with."""

    prompts_file: Annotated[
        Path | None,
        Option("--prompts", metavar="FILE", help='JSON lines with at least {"prompt": ...}, instead of the own sets.'),
    ] = None
    task: Annotated[
        list[str] | None,
        Option("--task", help="Only this task (code, edit, chat, math, summary, extraction); can be repeated."),
    ] = None
    limit: Annotated[int | None, Option("--limit", min=1, help="At most so many prompts of each task.")] = None

    def prompts(self) -> list[Prompt]:
        """The prompts. Raises `UsageError`."""
        from localspec.bench.prompts import own_prompts, read_prompts, select

        prompts = own_prompts() if self.prompts_file is None else read_prompts(self.prompts_file)
        tasks = [task.strip() for item in self.task or () for task in item.split(",") if task.strip()]
        return select(prompts, tasks, self.limit)


@dataclass
class LogOptions:
    """Logs."""

    log_file: Annotated[
        Path | None,
        Option("--log-file", metavar="FILE", help="Append all logs, the native ones too, to FILE.",
               rich_help_panel=OUTPUT),
    ] = None  # fmt: skip
    verbose: Annotated[bool, Option("-v", "--verbose", help="More on stderr.", rich_help_panel=OUTPUT)] = False

    def set_up(self) -> None:
        """Configure `logging`."""
        from localspec.cli.console import set_up_logging

        set_up_logging(self.log_file, self.verbose)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Show a command whose parameters are option groups to Typer with the groups' fields in their place."""
    # not get_type_hints: before Python 3.11 it wraps what defaults to None, and the wrapping hides it from Typer
    written = inspect.signature(command, eval_str=True).parameters
    annotations = {name: parameter.annotation for name, parameter in written.items()}
    groups: dict[str, type[Any]] = {
        name: made for name, made in annotations.items() if isinstance(made, type) and dataclasses.is_dataclass(made)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in written.items():
        if name not in groups:
            parameters.append(parameter)
            continue
        fields = typing.get_type_hints(groups[name], include_extras=True)
        for field in dataclasses.fields(groups[name]):
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field.name, kind, default=field.default, annotation=fields[field.name]))

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **made)

    del wrapper.__wrapped__
    ordered = sorted(parameters, key=lambda parameter: parameter.kind)
    wrapper.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return wrapper


def read_text(path: Path, what: str) -> str:
    """The UTF-8 text of a file that the user named. Raises `UsageError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the {what} file {path} cannot be read: {reason}") from error


def _bias(item: str) -> tuple[int, float]:
    token, equals, bias = item.partition("=")
    try:
        value = float(bias)
        if not equals or math.isnan(value):
            raise ValueError
        return int(token), value
    except ValueError:
        raise UsageError(f"--logit-bias {item!r} is not ID=BIAS", "for example --logit-bias 42=-1.5") from None
