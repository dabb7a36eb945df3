"""Answers tasks with plain decoding and with a method, side by side, and scores both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.decode import Limits
from localspec.engine.params import SamplingParams
from localspec.errors import ContextLengthError, EngineError
from localspec.evaluate.results import Answer, Result
from localspec.evaluate.scoring import Score
from localspec.evaluate.suites import Task
from localspec.events import DoneEvent, StepEvent
from localspec.methods.acceptance import Acceptance
from localspec.methods.base import Method
from localspec.methods.fixed import at_nodes
from localspec.session import Session

PLAIN = "plain"
WARM_UP_TOKENS = 16
#: called with tasks done and tasks in all
Progress = Callable[[int, int], None]


class Stopped(Exception):
    """`cancelled` said so; the task under way is lost."""


def evaluate(
    session: Session,
    tasks: Sequence[Task],
    method: str,
    *,
    sampling: SamplingParams,
    acceptance: Acceptance | None = None,
    max_tokens: int | None = None,
    nodes: int | None = None,
    known: Sequence[Result] = (),
    keep: Callable[[Result], None] = lambda result: None,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, total: None,
) -> list[Result]:
    """The results of `tasks`, in their order; those in `known` are not made again. `keep` gets each new one at once.

    Every task is answered with plain and with `method`, in alternating order, as in `bench`: drafters know nothing of
    earlier answers. Without `max_tokens` each kind of task has its own limit. `acceptance` holds for `method`, and with
    `nodes` it verifies the best tree of so many nodes at every step, whether that pays or not.

    Each task begins with an empty cache, as what is left there decides in which pieces a prompt is read, and so how it
    is rounded: with a lossless rule an evaluation that was stopped gives the texts of one that was not. What a loose
    rule forgives depends on the drafts, and so on what drafters have learned since the start.

    Raises `Stopped` when `cancelled` says so, `ContextLengthError` before anything runs for a task that does not fit,
    and what `Session.generate` raises.
    """
    arms = {PLAIN: session.method(PLAIN), method: session.method(method)}
    if nodes is not None and method != PLAIN:
        arms[method] = at_nodes(session.method(method, governed=False), nodes)
    made = {result.id: result for result in known}
    prompts = {task.prompt.id: _prompt(session, task, max_tokens) for task in tasks}
    missing = [task for task in tasks if task.prompt.id not in made]

    def answer(task: Task, arm: str, most: int) -> Answer:
        limits = Limits(most, session.template.stops)
        accept = None if arm == PLAIN else acceptance
        return _answer(session, prompts[task.prompt.id], arms[arm], sampling, limits, accept, cancelled)

    for arm in arms if missing else ():
        # the first steps of a process are slow ones
        answer(missing[0], arm, WARM_UP_TOKENS)
    for i, task in enumerate(tasks):
        progress(i, len(tasks))
        if task.prompt.id in made:
            continue
        session.forget()
        answers: dict[str, Answer] = {}
        for arm in list(arms)[:: -1 if i % 2 else 1]:
            session.clear_pool()
            answers[arm] = answer(task, arm, max_tokens or task.max_tokens)
        result = Result(task.prompt.id, task.prompt.task, _scored(task, {arm: answers[arm] for arm in arms}))
        made[result.id] = result
        keep(result)
    progress(len(tasks), len(tasks))
    return [made[task.prompt.id] for task in tasks]


def _prompt(session: Session, task: Task, max_tokens: int | None) -> list[int]:
    """The tokens of a task's prompt, for which there is room with an answer of full length."""
    tokens = session.chat_prompt([{"role": "user", "content": task.prompt.text}])
    needed = len(tokens) + (max_tokens or task.max_tokens)
    if needed > session.ctx.n_ctx:
        raise ContextLengthError(
            f"{task.prompt.id} may take {needed} tokens, and the context holds {session.ctx.n_ctx}",
            "give a larger --ctx-size or less --max-tokens",
        )
    return tokens


def _answer(
    session: Session,
    prompt: Sequence[int],
    method: Method,
    sampling: SamplingParams,
    limits: Limits,
    acceptance: Acceptance | None,
    cancelled: Callable[[], bool],
) -> Answer:
    """One answer, not scored yet."""
    text = ""
    done: DoneEvent | None = None
    for event in session.generate(prompt, sampling, limits, method, cancelled, acceptance=acceptance):
        if isinstance(event, StepEvent | DoneEvent):
            text += event.text
        if isinstance(event, DoneEvent):
            done = event
    if done is None:
        raise EngineError("a generation ended without its DoneEvent")
    if done.reason == "cancelled":
        raise Stopped
    return Answer(text, done.reason, done.stats, done.lossless, Score(False))


def _scored(task: Task, answers: dict[str, Answer]) -> dict[str, Answer]:
    """The answers with their scores. Equal texts have one score: tests may depend on chance."""
    scores: dict[str, Score] = {}
    for answer in answers.values():
        if answer.text not in scores:
            scores[answer.text] = task.check.score(answer.text)
    return {
        arm: Answer(made.text, made.reason, made.stats, made.lossless, scores[made.text])
        for arm, made in answers.items()
    }
