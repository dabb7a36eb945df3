"""EntMTP's offline stage (section 3): from a model with heads to a bank of trees with fitted policies.

The model answers prompts greedily; the heads' ranks of these answers are looked up; trees are grown and replayed
exactly; drafting is timed; the trees that should pay are run in the real loop; those that beat all smaller ones make
the bank, and policies are fitted to it by replay. A calibration that was stopped goes on where it was.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.bench.prompts import Prompt
from localspec.entmtp.bank_file import BankKey, StoredBank, now
from localspec.entmtp.fitting import Costs, best_policy, fit_policies
from localspec.entmtp.growth import accuracies
from localspec.entmtp.in_use import HeadsInUse
from localspec.entmtp.live import LiveRun, expected_accepted, mean_accepted, tree_id
from localspec.entmtp.measured import MeasuredTree
from localspec.entmtp.pareto import bank_by_cost
from localspec.entmtp.plan import Plan, front_points
from localspec.entmtp.ranks import RankLog
from localspec.entmtp.stages import (
    Stopped,
    Tell,
    digest,
    rank_answers,
    record_answers,
    run_trees,
    time_drafts,
)
from localspec.errors import UsageError
from localspec.journal import Journal
from localspec.paths import cache_dir
from localspec.replay.log import LoggedAnswer
from localspec.session import Session
from localspec.static_tree import StaticTree

#: called with the stage and the share of it that is done; returns False to stop
Watch = Callable[[str, float], bool]
#: the first line of the measurements that are written down
JOURNAL = {"format": "localspec-calibration", "version": 2}


@dataclass(frozen=True)
class Options:
    """`max_tokens` of an answer, and how many answers are written again to measure trees."""

    max_tokens: int = 160
    n_measured: int = 9


@dataclass
class Calibration:
    """A calibration for `task`. The context of `session` must have hidden states.

    `run` raises `Stopped` when `watch` says so, and the same calibration goes on then where it was. Raises `UsageError`
    for a context that cannot hold trees, and without prompts.
    """

    session: Session
    heads: HeadsInUse
    task: str
    prompts: Sequence[Prompt]
    options: Options = field(default_factory=Options)
    watch: Watch = lambda stage, share: True

    def __post_init__(self) -> None:
        ctx = self.session.ctx
        if ctx.max_nodes < 2:
            raise UsageError(f"no trees can be used here: {ctx.tree_limit_reason}", "use this model without heads")
        if not self.prompts:
            raise UsageError("there are no prompts to calibrate with", "give some with --prompts")
        self.prompts_digest = digest([[prompt.id, prompt.task, prompt.text] for prompt in self.prompts])

    def made(self, stored: StoredBank) -> bool:
        """Whether a bank was made with these prompts and options."""
        made = (stored.report.get("prompts"), stored.report.get("max_tokens"))
        return made == (self.prompts_digest, self.options.max_tokens)

    @property
    def key(self) -> BankKey:
        """What the bank will belong to."""
        return self.heads.key(self.session, self.task)

    @property
    def folder(self) -> Path:
        """Where answers and measurements are kept: the same for all tasks and heads of a set-up."""
        return cache_dir() / "calibration" / digest(self.session.curve_key.digest, self.options.max_tokens)

    @property
    def journal_path(self) -> Path:
        """The measurements of this bank while it is made."""
        return self.folder / f"measured-{self.key.digest}-{self.prompts_digest}.jsonl"

    def forget_measurements(self) -> None:
        """The next run measures again; answers and ranks, which stay the same, are kept."""
        self.journal_path.unlink(missing_ok=True)

    def run(self) -> StoredBank:
        """All stages, as far as they are not done. Raises `Stopped`, `UsageError` and what the session raises."""
        curve = self.session.calibrate().curve
        if curve is None:
            raise UsageError("the cost of a step could not be measured", "calibrate again")
        session, heads, max_tokens = self.session, self.heads, self.options.max_tokens
        answers = record_answers(session, self.prompts, self.folder, max_tokens, self._tell("recording answers"))
        ranks = self.folder / f"ranks-{heads.fingerprint}-{self.prompts_digest}.npz"
        log = rank_answers(session, heads.reference, answers, ranks, self._tell("looking up ranks"))
        self._tell("growing trees")(0.0)
        plan = Plan.of(log, session.ctx.max_nodes)
        with Journal(self.journal_path, JOURNAL) as journal:
            drafts = self._time(plan.trees, answers[0], journal)
            trees = plan.shortlist(curve, drafts)
            again = self._to_measure(answers)
            tell = self._tell("running trees")
            runs = run_trees(session, heads.evaluator, trees, again, max_tokens, journal, tell)
            measured = _measured(trees, runs, log, plan, lambda tree: curve.cost(tree.n_nodes), drafts)
            bank = bank_by_cost(plan.of_trees(trees), {m.tree: m.seconds for m in measured}.__getitem__)
            union = StaticTree.union(bank.trees)
            union_seconds = self._time([union], answers[0], journal)[union]
        draft_seconds = tuple(drafts[tree] for tree in bank.trees)
        self._tell("fitting policies")(0.0)
        policies = fit_policies(log, bank.trees, Costs.of(bank, draft_seconds, union_seconds))
        report = {"prompts": self.prompts_digest, "max_tokens": max_tokens, **_report(log, plan, runs)}
        best = best_policy(policies)
        return StoredBank(
            self.key, heads.names, now(), curve, bank, draft_seconds, union_seconds, policies, best, measured, report
        )

    def _tell(self, stage: str) -> Tell:
        def tell(share: float) -> None:
            if not self.watch(stage, share):
                raise Stopped

        return tell

    def _time(self, trees: Sequence[StaticTree], answer: LoggedAnswer, journal: Journal) -> dict[StaticTree, float]:
        return time_drafts(self.session, self.heads.evaluator, answer, trees, journal, self._tell("timing drafts"))

    def _to_measure(self, answers: Sequence[LoggedAnswer]) -> list[LoggedAnswer]:
        """Some answers of every task, the first ones."""
        tasks = list(dict.fromkeys(answer.task for answer in answers))
        most = -(-self.options.n_measured // len(tasks))
        return [answer for task in tasks for answer in [a for a in answers if a.task == task][:most]]


def _measured(
    trees: Sequence[StaticTree],
    runs: Sequence[LiveRun],
    log: RankLog,
    plan: Plan,
    verify_seconds: Callable[[StaticTree], float],
    drafts: Mapping[StaticTree, float],
) -> tuple[MeasuredTree, ...]:
    """The figures of each tree over its runs.

    Times are those of plain decoding times the median, over the answers, of its own in those of plain decoding for the
    same answer: so a busy spell of the machine, and the length of a text, touch both sides.
    """
    ranked = {answer.id: answer for answer in log.answers}
    plain = {run.prompt: run for run in runs if run.tree == tree_id(StaticTree())}

    def against_plain(mine: Sequence[LiveRun], figure: Callable[[LiveRun], float]) -> float:
        unit = statistics.median(map(figure, plain.values()))
        return unit * statistics.median(figure(run) / figure(plain[run.prompt]) for run in mine)

    found = []
    for tree, replayed in zip(trees, plan.of_trees(trees), strict=True):
        mine = [run for run in runs if run.tree == tree_id(tree)]
        tokens, steps = sum(run.tokens for run in mine), sum(run.steps for run in mine)
        found.append(
            MeasuredTree(
                tree,
                replayed.mean_accepted,
                expected=expected_accepted([ranked[run.prompt] for run in mine], tree),
                measured=mean_accepted(tokens, steps),
                draft_seconds=drafts[tree],
                planned_seconds=verify_seconds(tree) + drafts[tree],
                # of a whole answer, as its speed: medians of single steps put trees in another order than their speeds
                seconds=against_plain(mine, lambda run: run.seconds / run.steps),
                tokens_per_second=against_plain(mine, lambda run: run.tokens / run.seconds),
            )
        )
    return tuple(found)


def _report(log: RankLog, plan: Plan, runs: Sequence[LiveRun]) -> dict[str, Any]:
    """What else is worth knowing."""
    return {
        "answers": len(log.answers),
        "tokens": len(log),
        "tasks": list(log.tasks),
        "answers_measured": len({run.prompt for run in runs}),
        # runs whose text was not that of plain decoding, as may happen on a GPU
        "runs": len(runs),
        "runs_with_another_text": sum(not run.same for run in runs),
        "top1": accuracies(log, 1)[:, 0].tolist(),
        "front": front_points(plan.front),
    }
