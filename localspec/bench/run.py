"""Runs methods against plain decoding, prompt by prompt in one process, and records every run.

A machine is never quiet, so speeds are only comparable when they were measured side by side: for every prompt all
methods run one after the other, plain among them, in an order that rotates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from localspec.bench.bound import Bound, bounds, by_task
from localspec.bench.head_bound import head_bounds
from localspec.bench.prompts import Prompt
from localspec.bench.step_costs import StepCosts
from localspec.bench.usage import Usage, usage_of
from localspec.calibrate.curve import CostCurve
from localspec.decode import Limits
from localspec.describe import describe
from localspec.engine.params import SamplingParams
from localspec.entmtp.prompts import bank_task
from localspec.errors import EngineError
from localspec.events import DoneEvent, NoteEvent, Stats, StepEvent
from localspec.methods.acceptance import Acceptance
from localspec.methods.base import Method
from localspec.methods.fixed import at_nodes
from localspec.methods.governor import OFF_NOTE
from localspec.methods.head_methods import BASELINES
from localspec.methods.registry import UNION, check_method
from localspec.replay.log import LoggedAnswer
from localspec.replay.record import record_answer
from localspec.session import Session

PLAIN = "plain"
#: short names for several methods
GROUPS = {"entmtp": BASELINES}
WARM_UP_TOKENS = 16
#: called with runs done and runs in all
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One generation. `same` tells whether its tokens equal those of plain for the same prompt and repeat, `lossless`
    whether its text has the model's distribution. `usage` is what became of trees and heads, None without any;
    `went_off` how often the governor turned speculation off. `nodes` counts the steps by what they verified."""

    prompt_id: str
    task: str
    method: str
    repeat: int
    reason: str
    same: bool
    stats: Stats
    lossless: bool = True
    usage: Usage | None = None
    went_off: int = 0
    nodes: Mapping[int, int] = field(default_factory=dict)

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
    #: what steps cost in the answers of each task, timed when bounds were asked for
    curves: Mapping[str, CostCurve] = field(default_factory=dict)
    #: answers in which they were timed, and those of them where the machine was too busy to rely on it
    timed: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class _Outcome:
    tokens: list[int]
    done: DoneEvent
    usage: Usage | None
    went_off: int
    nodes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Setting:
    """How all runs of a bench are made."""

    session: Session
    sampling: SamplingParams
    limits: Limits
    nodes: int | None
    acceptance: Acceptance

    def method(self, name: str) -> Method:
        """The method, made to verify the best tree of `nodes` nodes at every step if there is such a number."""
        if self.nodes is None or name == PLAIN:
            return self.session.method(name)
        return at_nodes(self.session.method(name, governed=False), self.nodes)

    def run(self, prompt: Sequence[int], method: Method, max_tokens: int | None = None) -> _Outcome:
        """One generation of at most `max_tokens` tokens (None: what all runs may have)."""
        limits = self.limits if max_tokens is None else replace(self.limits, max_tokens=max_tokens)
        steps: list[StepEvent] = []
        done: DoneEvent | None = None
        went_off = 0
        for event in self.session.generate(prompt, self.sampling, limits, method, acceptance=self.acceptance):
            if isinstance(event, StepEvent):
                steps.append(event)
            elif isinstance(event, NoteEvent):
                went_off += event.text == OFF_NOTE
            elif isinstance(event, DoneEvent):
                done = event
        if done is None:
            raise EngineError("a generation ended without its DoneEvent")
        # with a number of nodes there is no choice to tell of
        usage = usage_of(method, steps) if self.nodes is None else None
        nodes = dict(Counter(len(step.tree_tokens) for step in steps))
        return _Outcome([token for step in steps for token in step.tokens], done, usage, went_off, nodes)


def check_methods(methods: Sequence[str]) -> list[str]:
    """`methods` with plain in front, each once, and those of a group in its place. Raises `UsageError` for an unknown
    one."""
    names = [name for given in methods for name in GROUPS.get(given, (given,))]
    for name in names:
        check_method(name)
    return list(dict.fromkeys([PLAIN, *names]))


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

    Drafters know nothing of earlier answers, as in a new chat; trees are of the bank for the prompt's task. With
    `nodes` every step verifies the best tree of so many nodes, whether that pays or not: so methods compare at equal
    sizes. `with_bounds` answers every prompt once more after its first runs, to record what bounds are computed from,
    and times steps there. `acceptance` holds for all methods but plain.

    Raises what `Session.generate` raises, and `UsageError` before anything runs for a method that lacks its heads or
    its bank.
    """
    methods = check_methods(methods)
    acceptance = acceptance or Acceptance()
    _check(session, prompts, methods)
    header = {
        "methods": methods,
        "max_tokens": max_tokens,
        "repeats": repeats,
        "nodes": nodes,
        "prompts": len(prompts),
        "temperature": sampling.temperature,
        **acceptance.to_dict(),
        "draft_sampling": acceptance.draft_sampling,
        "seed": sampling.seed,
    }
    result = BenchResult({**describe(session), **header})
    limits = Limits(max_tokens=max_tokens, stops=session.template.stops)
    setting = _Setting(session, sampling, limits, nodes, acceptance)
    tokens = [session.chat_prompt([{"role": "user", "content": prompt.text}]) for prompt in prompts]
    _warm_up(setting, prompts, tokens, methods)
    total = len(prompts) * (repeats * len(methods) + with_bounds)
    n_done = 0

    def tell() -> None:
        nonlocal n_done
        n_done += 1
        if progress is not None:
            progress(n_done, total)

    curve = session.curve if with_bounds else None
    ground = None if curve is None else _Ground(session, curve, sampling, max_tokens)
    for repeat in range(repeats):
        for i, prompt in enumerate(prompts):
            outcomes: dict[str, _Outcome] = {}
            for name in _order(methods, i, repeat):
                session.clear_pool()
                with on_task(session, prompt.task):
                    outcomes[name] = setting.run(tokens[i], setting.method(name))
                tell()
            result.runs += [_compared(prompt, name, repeat, outcomes) for name in methods]
            if ground is not None and repeat == 0:
                ground.take(prompt, methods[-1])
                tell()
    if ground is not None:
        result.curves, result.timed = ground.curves(), ground.timed
        result.bounds = ground.bounds(methods, result.curves)
    return result


def _check(session: Session, prompts: Sequence[Prompt], methods: Sequence[str]) -> None:
    """Raise `UsageError` for a method that cannot be had on one of the tasks, before anything is measured."""
    for task in dict.fromkeys(prompt.task for prompt in prompts):
        with on_task(session, task):
            for name in methods:
                session.check(name)


def _warm_up(
    setting: _Setting, prompts: Sequence[Prompt], tokens: Sequence[Sequence[int]], methods: Sequence[str]
) -> None:
    """A few tokens with everything that will be measured: each method once, and once more for another bank."""
    most = min(setting.limits.max_tokens or WARM_UP_TOKENS, WARM_UP_TOKENS)
    warm: list[object] = []
    for prompt, ids in zip(prompts, tokens, strict=True):
        with on_task(setting.session, prompt.task):
            for name in methods:
                method = setting.method(name)
                if not any(method.drafter is drafter for drafter in warm):
                    setting.run(ids, method, most)
                    warm.append(method.drafter)


def _order(methods: list[str], i: int, repeat: int) -> list[str]:
    """The order of the methods for a prompt; a method does not always follow the same other one."""
    turn, shift = divmod(i + repeat, len(methods))
    order = methods[shift:] + methods[:shift]
    return order[::-1] if turn % 2 else order


def _compared(prompt: Prompt, method: str, repeat: int, outcomes: Mapping[str, _Outcome]) -> Run:
    """The run of one of the methods that were run for a prompt."""
    made = outcomes[method]
    same = made.tokens == outcomes[PLAIN].tokens
    end = made.done
    return Run(
        prompt.id, prompt.task, method, repeat, end.reason, same, end.stats, end.lossless, made.usage, made.went_off,
        made.nodes,
    )  # fmt: skip


class _Ground:
    """What bounds are computed from: the answers, as a log has them, and the cost of steps in them."""

    def __init__(self, session: Session, curve: CostCurve, sampling: SamplingParams, max_tokens: int) -> None:
        self._session, self._sampling, self._max_tokens = session, sampling, max_tokens
        self._costs = StepCosts(curve)
        self.answers: list[LoggedAnswer] = []

    def take(self, prompt: Prompt, method: str) -> None:
        """Answer the prompt once more, with any method, and time steps there."""
        session = self._session
        with on_task(session, prompt.task):
            answer = record_answer(session, prompt, self._sampling, self._max_tokens, method)
        session.forget()
        self._costs.time(session.ctx, answer)
        self.answers.append(answer)

    @property
    def timed(self) -> tuple[int, int]:
        return self._costs.n_timed, self._costs.n_unsteady

    def curves(self) -> Mapping[str, CostCurve]:
        return self._costs.curves(by_task(self.answers))

    def bounds(self, methods: Sequence[str], curves: Mapping[str, CostCurve]) -> dict[tuple[str, str], Bound]:
        session = self._session
        # what the bound of "auto" would be is not known where it is more than ptd
        replayed = [name for name in methods if name != "auto" or session.method(name).name != UNION]
        session.forget()
        found = bounds(self.answers, replayed, curves, session.corpus)
        return found | head_bounds(session, self.answers, methods, curves)


@contextmanager
def on_task(session: Session, task: str) -> Iterator[None]:
    """Inside, methods of the session take their trees from the bank for prompts of `task`."""
    before = session.task
    session.task = bank_task(task)
    try:
        yield
    finally:
        session.task = before
