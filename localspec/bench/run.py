"""Runs methods against plain decoding, prompt by prompt in one process, and records every run.

A machine is never quiet, so speeds are only comparable when they were measured side by side: for every prompt all
methods run one after the other, plain among them, in an order that rotates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from localspec.bench.bound import Bound, bounds
from localspec.bench.prompts import Prompt
from localspec.decode import Limits
from localspec.describe import describe
from localspec.engine.params import SamplingParams
from localspec.events import DoneEvent, Stats, StepEvent
from localspec.methods.acceptance import Acceptance
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.replay.record import record_answer
from localspec.session import Session

PLAIN = "plain"
WARM_UP_TOKENS = 16
#: called with runs done and runs in all
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One generation. `same` tells whether its tokens equal those of plain for the same prompt and repeat, `lossless`
    whether its text has the model's distribution."""

    prompt_id: str
    task: str
    method: str
    repeat: int
    reason: str
    same: bool
    stats: Stats
    lossless: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "tokens_per_second": self.stats.tokens_per_second}


@dataclass(slots=True)
class BenchResult:
    """All runs of one bench, and what they were run with."""

    header: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    #: by (method, task), for methods that can be replayed, when they were asked for
    bounds: dict[tuple[str, str], Bound] = field(default_factory=dict)


def check_methods(methods: Sequence[str]) -> list[str]:
    """`methods` with plain in front, each once. Raises `UsageError` for an unknown one."""
    from localspec.methods.registry import check_method

    for method in methods:
        check_method(method)
    return list(dict.fromkeys([PLAIN, *methods]))


def bench(
    session: Session,
    prompts: Sequence[Prompt],
    methods: Sequence[str],
    *,
    sampling: SamplingParams,
    max_tokens: int,
    repeats: int = 1,
    nodes: int | None = None,
    with_bounds: bool = False,
    acceptance: Acceptance | None = None,
    progress: Progress | None = None,
) -> BenchResult:
    """Run every prompt with plain and with each of `methods`. The prompt's own time is kept apart in the stats.

    Drafters know nothing of earlier answers, as in a new chat. With `nodes` every step verifies the best tree of so
    many nodes, whether that pays or not: so methods compare at equal sizes. `with_bounds` answers every prompt once
    more, to record what the bounds are computed from.

    `acceptance` holds for all methods but plain.

    Raises what `Session.generate` raises.
    """
    methods = check_methods(methods)
    acceptance = acceptance or Acceptance()
    limits = Limits(max_tokens=max_tokens, stops=session.template.stops)
    result = BenchResult(
        {
            **describe(session),
            "methods": methods,
            "max_tokens": max_tokens,
            "repeats": repeats,
            "nodes": nodes,
            "prompts": len(prompts),
            "temperature": sampling.temperature,
            "accept": acceptance.accept,
            "draft_sampling": acceptance.draft_sampling,
            "seed": sampling.seed,
        }
    )
    tokens = [session.chat_prompt([{"role": "user", "content": prompt.text}]) for prompt in prompts]
    warm_up = Limits(max_tokens=min(max_tokens, WARM_UP_TOKENS))
    for method in methods:
        _generate(session, tokens[0], sampling, warm_up, method, acceptance)
    total = len(prompts) * (repeats * len(methods) + with_bounds)
    for repeat in range(repeats):
        for i, prompt in enumerate(prompts):
            turn, shift = divmod(i + repeat, len(methods))
            order = methods[shift:] + methods[:shift]
            if turn % 2:  # so that a method does not always follow the same other one
                order.reverse()
            outcomes = {}
            for method in order:
                session.clear_pool()
                chosen = method if nodes is None or method == PLAIN else _fixed(session.method(method), nodes)
                outcomes[method] = _generate(session, tokens[i], sampling, limits, chosen, acceptance)
                if progress is not None:
                    progress(len(result.runs) + len(outcomes), total)
            for method in methods:
                text, done = outcomes[method]
                same = text == outcomes[PLAIN][0]
                result.runs.append(
                    Run(prompt.id, prompt.task, method, repeat, done.reason, same, done.stats, done.lossless)
                )
    if with_bounds and session.curve is not None:
        answers = []
        for prompt in prompts:
            answers.append(record_answer(session, prompt, sampling, max_tokens))
            if progress is not None:
                progress(len(result.runs) + len(answers), total)
        result.bounds = bounds(answers, methods, session.curve, session.corpus)
    return result


def _fixed(method: Method, nodes: int) -> Method:
    return replace(method, scheduler=Fixed(nodes), scout=None)


def _generate(
    session: Session,
    prompt: Sequence[int],
    sampling: SamplingParams,
    limits: Limits,
    method: str | Method,
    acceptance: Acceptance,
) -> tuple[list[int], DoneEvent]:
    tokens: list[int] = []
    done: DoneEvent | None = None
    for event in session.generate(prompt, sampling, limits, method, acceptance=acceptance):
        if isinstance(event, StepEvent):
            tokens += event.tokens
        elif isinstance(event, DoneEvent):
            done = event
    if done is None:
        raise RuntimeError("a generation ended without its DoneEvent")
    return tokens, done
