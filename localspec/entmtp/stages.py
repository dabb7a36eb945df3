"""The stages of a calibration that take time. Each writes down what it has as it goes, and begins behind that.

Every prompt is read from its beginning. One that goes on from what an earlier prompt left in the cache is read in other
pieces, and long pieces are summed in another order: hidden states would then differ between the stages, and with them
what the heads draft.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.bench.prompts import Prompt
from localspec.engine.params import SamplingParams
from localspec.entmtp.live import ROUNDS, LiveRun, draft_times, run_tree, tree_id
from localspec.entmtp.observe import hidden_rows, observe_answers
from localspec.entmtp.ranks import RankedAnswer, RankLog
from localspec.errors import UsageError
from localspec.heads.reference import ReferenceHeads
from localspec.journal import Journal
from localspec.methods.heads import Evaluator
from localspec.replay.log import AnswerLog, LoggedAnswer
from localspec.replay.record import record
from localspec.session import Session
from localspec.static_tree import StaticTree

#: called with the share of a stage that is done; raises `Stopped` to end it
Tell = Callable[[float], None]


class Stopped(Exception):
    """A calibration was asked to stop."""


def digest(*values: object) -> str:
    """A file name's worth of JSON data."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def record_answers(
    session: Session, prompts: Sequence[Prompt], folder: Path, max_tokens: int, tell: Tell
) -> list[LoggedAnswer]:
    """The model's greedy answers to `prompts`, in their order.

    Each task has a log of its own in `folder`, which serves all calibrations of this task. Raises `UsageError` for a
    log that cannot be used.
    """
    found: dict[str, LoggedAnswer] = {}
    for task in dict.fromkeys(prompt.task for prompt in prompts):
        mine = [prompt for prompt in prompts if prompt.task == task]
        path = folder / f"answers-{digest([[prompt.id, prompt.text] for prompt in mine])}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = len(found)

        def progress(n: int, total: int, before: int = before, size: int = len(mine)) -> None:
            session.forget()
            tell((before + size - total + n) / len(prompts))

        session.forget()
        record(
            session,
            mine,
            path,
            sampling=SamplingParams(temperature=0.0),
            max_tokens=max_tokens,
            method="plain",
            progress=progress,
        )
        found |= {answer.id: answer for answer in AnswerLog.read(path).answers}
    return [found[prompt.id] for prompt in prompts]


def rank_answers(
    session: Session, heads: ReferenceHeads, answers: Sequence[LoggedAnswer], path: Path, tell: Tell
) -> RankLog:
    """The ranks that the heads gave the tokens of `answers`, in their order; kept in the rank log at `path`."""
    known = _known_ranks(path)
    try:
        for n, answer in enumerate(answers, start=1):
            if answer.id not in known or len(known[answer.id]) != len(answer.tokens):
                known[answer.id] = observe_answers(session.ctx, heads, [answer], {}).answers[0]
                RankLog(tuple(known.values())).save(path)
                tell(n / len(answers))
    finally:
        session.forget()
    return RankLog(tuple(known[answer.id] for answer in answers))


def _known_ranks(path: Path) -> dict[str, RankedAnswer]:
    """What a rank log holds; nothing where it cannot be used, as it can be made again."""
    try:
        return {answer.id: answer for answer in RankLog.load(path).answers}
    except UsageError:
        return {}


def time_drafts(
    session: Session,
    heads: Evaluator,
    answer: LoggedAnswer,
    trees: Sequence[StaticTree],
    journal: Journal,
    tell: Tell,
) -> dict[StaticTree, float]:
    """Seconds that the heads take to draft each of `trees` in the text of `answer`."""
    known = {entry["tree"]: float(entry["draft_seconds"]) for entry in journal.entries if "draft_seconds" in entry}
    missing = [tree for tree in trees if tree_id(tree) not in known]
    if missing:
        ctx, n_turns = session.ctx, ROUNDS * len(missing)

        def step() -> None:
            ctx.decode(answer.tokens[-1:], [-1])
            ctx.drop()

        try:
            hidden, _ = hidden_rows(ctx, answer.prompt, answer.tokens)
            ctx.trim(len(answer.prompt))  # room for a step
            times = draft_times(heads, hidden, answer.tokens, missing, lambda n: tell(n / n_turns), step)
        finally:
            session.forget()
        for tree, seconds in zip(missing, times, strict=True):
            known[tree_id(tree)] = seconds
            journal.append({"tree": tree_id(tree), "draft_seconds": seconds})
    return {tree: known[tree_id(tree)] for tree in trees}


def run_trees(
    session: Session,
    heads: Evaluator,
    trees: Sequence[StaticTree],
    answers: Sequence[LoggedAnswer],
    max_tokens: int,
    journal: Journal,
    tell: Tell,
) -> list[LiveRun]:
    """Every answer written again with every tree.

    They run side by side, answer by answer and in an order that rotates: on a busy machine nothing else compares.
    """
    runs = [LiveRun(**entry["run"]) for entry in journal.entries if "run" in entry]
    known = {(run.prompt, run.tree) for run in runs}
    n_done, total = 0, len(trees) * len(answers)
    for i, answer in enumerate(answers):
        session.forget()
        shift = i % len(trees)
        order = [*trees[shift:], *trees[:shift]]
        for tree in order[::-1] if i % 2 else order:
            n_done += 1
            if (answer.id, tree_id(tree)) not in known:
                runs.append(run_tree(session, heads, tree, answer, max_tokens))
                journal.append({"run": runs[-1].to_dict()})
                tell(n_done / total)
    wanted = {(answer.id, tree_id(tree)) for answer in answers for tree in trees}
    return [run for run in runs if (run.prompt, run.tree) in wanted]
