"""Runs static trees in the real loop: what they bring and what they cost, end to end.

The loop's steps differ from those of a replay at both ends of an answer: its first step knows no hidden state yet and
is plain, and it ends with the last token where a replay takes one more step from there. So acceptance is compared
with `loop_steps`, which counts as the loop does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter

from localspec.decode import Limits
from localspec.engine.params import SamplingParams
from localspec.entmtp.ranks import RankedAnswer
from localspec.entmtp.replay import accepted_everywhere, visited
from localspec.errors import EngineError
from localspec.events import DoneEvent, StepEvent
from localspec.heads.spec import FloatArray
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.heads import Evaluator, HeadsDrafter
from localspec.methods.plain import PlainDrafter
from localspec.methods.strict import StrictVerifier
from localspec.replay.log import LoggedAnswer
from localspec.session import Session
from localspec.static_tree import StaticTree

#: calls that are timed at a time, after `WARM_UP` that are not, and how often
CALLS, WARM_UP, ROUNDS = 8, 2, 3


def loop_steps(answer: RankedAnswer, tree: StaticTree) -> int:
    """Steps that the decoding loop takes to write an answer with a tree: a plain one, then those of a replay, which
    needs none from the last token on.

    A limit on the length changes nothing: it cuts the last step's tree, which then writes the same tokens.
    """
    return 1 + sum(t < len(answer) - 1 for t in visited(accepted_everywhere(answer.ranks, tree)))


def mean_accepted(tokens: int, steps: int) -> float:
    """Accepted drafts of a step: each step writes one token more."""
    return (tokens - steps) / steps


def expected_accepted(answers: Iterable[RankedAnswer], tree: StaticTree) -> float:
    """The mean acceptance that live runs of these answers should have, by replay."""
    answers = list(answers)
    return mean_accepted(sum(map(len, answers)), sum(loop_steps(answer, tree) for answer in answers))


def tree_method(heads: Evaluator, tree: StaticTree) -> Method:
    """The method that verifies all of `tree` at every step but the first; no drafts at all make plain decoding."""
    drafter = HeadsDrafter(heads, tree) if tree.n_drafts else PlainDrafter()
    return Method("heads", drafter, Fixed(tree.n_nodes), StrictVerifier())


@dataclass(frozen=True, slots=True)
class LiveRun:
    """An answer that was written again with a tree; `same` tells whether the text was the recorded one."""

    prompt: str
    tree: str
    tokens: int
    steps: int
    seconds: float
    same: bool

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


def tree_id(tree: StaticTree) -> str:
    """A text that stands for the paths of a tree."""
    return " ".join(".".join(map(str, path)) for path in tree.paths)


def run_tree(session: Session, heads: Evaluator, tree: StaticTree, answer: LoggedAnswer, max_tokens: int) -> LiveRun:
    """Write a recorded answer again, greedily, with `tree`."""
    limits = Limits(max_tokens=max_tokens, stops=session.template.stops)
    tokens: list[int] = []
    done: DoneEvent | None = None
    method = tree_method(heads, tree)
    for event in session.generate(answer.prompt, SamplingParams(temperature=0.0), limits, method):
        if isinstance(event, StepEvent):
            tokens += event.tokens
        elif isinstance(event, DoneEvent):
            done = event
    if done is None or not tokens:
        raise EngineError(f"the answer to prompt {answer.id} did not end")
    stats = done.stats
    same = tuple(tokens) == answer.tokens
    return LiveRun(answer.id, tree_id(tree), stats.n_tokens, stats.n_steps, stats.seconds, same)


def draft_times(
    heads: Evaluator,
    hidden: FloatArray,
    tokens: Sequence[int],
    trees: Sequence[StaticTree],
    on_tree: Callable[[int], None] = lambda n: None,
    step: Callable[[], object] = lambda: None,
) -> list[float]:
    """Median seconds that the heads take to draft each of `trees`, 0 for the one without drafts.

    `hidden` [n, n_embd] and `tokens` [n] are what they draft from, in turn. A tree is drafted several times in a row,
    as in a text, and the first calls after another tree do not count; rounds go up and down the list, so that a busy
    moment of the machine touches several trees. `on_tree` is told how many are done. `step` is done before every draft
    and not timed: behind a step of the model the heads find little of themselves in the caches, and take twice as long.
    """
    times: list[list[float]] = [[] for _ in trees]
    order = list(range(len(trees)))
    n_done = 0
    for _ in range(ROUNDS):
        for k in order:
            for call in range(WARM_UP + CALLS if trees[k].n_drafts else 0):
                at = call % len(tokens)
                step()
                start = perf_counter()
                heads.draft(hidden[at], int(tokens[at]), trees[k])
                if call >= WARM_UP:
                    times[k].append(perf_counter() - start)
            n_done += 1
            on_tree(n_done)
        order.reverse()
    return [statistics.median(values) if values else 0.0 for values in times]
