"""Tasks, answers and a session without a model, for tests of the evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from localspec.bench.prompts import Prompt
from localspec.evaluate.results import Answer, Result
from localspec.evaluate.scoring import FinalNumber, Score
from localspec.evaluate.suites import Task
from localspec.events import DoneEvent, Event, Stats, StepEvent, StepTimings
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.plain import PlainDrafter
from localspec.methods.strict import StrictVerifier
from localspec.tree import Topology


def task(number: int, split: str = "test") -> Task:
    """A task whose right answer is its number."""
    return Task(Prompt(f"n/{number}", "numbers", f"Say {number}."), split, FinalNumber(Decimal(number)))


def answer(right: bool, text: str = "", *, speed: float = 10.0, **more: Any) -> Answer:
    stats = Stats(n_tokens=20, n_steps=more.pop("n_steps", 20), seconds=20 / speed)
    stats.n_drafted, stats.forgiven = more.pop("drafted", 30), list(range(more.pop("forgiven", 0)))
    made: dict[str, Any] = {"reason": "stop", "lossless": True, "score": Score(right), **more}
    return Answer(text or str(right), stats=stats, **made)


def result(number: int, plain: Answer, other: Answer, name: str = "draft") -> Result:
    return Result(f"n/{number}", "numbers", {"plain": plain, name: other})


class FakeSession:
    """Answers with what `say(prompt, method)` returns; tells everything that happened in `log`."""

    def __init__(self, say: Callable[[str, str], str], n_ctx: int = 4096) -> None:
        self.say = say
        self.log: list[tuple[str, ...]] = []
        self.acceptances: dict[str, object] = {}
        self.budgets: dict[str, int] = {}
        self.ctx = SimpleNamespace(n_ctx=n_ctx)
        self.template = SimpleNamespace(stops=("END",))
        self._prompts: list[str] = []

    def method(self, name: str, *, governed: bool = True) -> Method:
        """Methods that are governed ask for 8 nodes, others for 16."""
        return Method(name, PlainDrafter(), Fixed(8 if governed else 16), StrictVerifier())

    def forget(self) -> None:
        self.log.append(("forget",))

    def clear_pool(self) -> None:
        self.log.append(("clear",))

    def chat_prompt(self, messages: list[dict[str, str]]) -> list[int]:
        self._prompts.append(messages[0]["content"])
        return [len(self._prompts) - 1]

    def generate(
        self, prompt: list[int], sampling: Any, limits: Any, method: Method, cancelled: Any, *, acceptance: Any
    ) -> Iterator[Event]:
        self.budgets[method.name] = method.scheduler.budget()
        name = method.name
        text = self.say(self._prompts[prompt[0]], name)
        self.acceptances[name] = acceptance
        self.log.append((self._prompts[prompt[0]], name, str(limits.max_tokens)))
        timings = StepTimings(0, 0, 0, 0, 0, 0.1)
        yield StepEvent((1,), text[:2], name, Topology.chain(1), (0,), (), timings)
        stats = Stats(n_prompt=1, n_tokens=3, n_steps=1, seconds=0.1, forgiven=[0] * (acceptance is not None))
        yield DoneEvent("cancelled" if cancelled() else "stop", text[2:], stats, lossless=acceptance is None)
