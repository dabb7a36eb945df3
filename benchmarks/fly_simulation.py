"""What FLy's loose acceptance brings for chains of K drafts, and what it would bring where steps cost something else.

    python benchmarks/fly_simulation.py TARGET DRAFT STORE.jsonl [--prompts FILE] [--limit N] [-n 64] [--measure]
        [--assume "WHERE THE NUMBERS COME FROM" DRAFT_COST 1=1,16=1,26=1.1]

TARGET and DRAFT are GGUF files, or names of pulled models, with the same vocabulary. Every run is a run of its own: for
each K, strict and loose texts are written step by step, as after a forgiven token a text goes another way. A step needs
to know the draft's greedy chain behind the text so far and what the target says along it; that is asked of the models
once for each text and kept in STORE, so a second call, with other parameters too, replays what is known and asks for
the rest alone. So the tokens per step are exact for this pair of models and these prompts, at temperature 0.

Speeds are not timed, they are computed: a step that drafts k tokens costs k * d + c(k + 1) single steps of the target.
With --measure, d and c(n) are those of this machine, measured now and kept in STORE; each --assume adds others, and
without any some are assumed for larger models. Those lines keep the acceptance of the pair that was run, which a larger
pair need not have.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from localspec import hub
from localspec.bench.prompts import own_prompts, read_prompts, select
from localspec.calibrate.curve import CostCurve
from localspec.calibrate.measure import measure
from localspec.chat import ChatTemplate, chat_tokens
from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.journal import Journal, read_header
from localspec.methods.fly import (
    ENTROPY_FORMS,
    LITERALS,
    TOP,
    LooseRule,
    judge,
    normalised_entropy,
    ratio_to_best,
    top3_entropy,
)
from localspec.methods.literals import any_literal
from localspec.verify import first_difference

STORE = {"format": "localspec-fly", "version": 2}
MOST = 25
KS = (3, 5, 8, 15, 25)
#: (where the numbers come from, cost of a draft step in steps of the target, c(n))
ASSUMED = tuple(
    (f"{target} target, {draft} draft: GB of their Q4_K_M files, {curve}", ratio, points)
    for target, draft, ratio in (("7B", "0.5B", 0.49 / 4.68), ("70B", "8B", 4.9 / 42.5), ("70B", "1B", 0.81 / 42.5))
    for curve, points in (
        ("c(n) of a GPU bound by memory", "1=1,16=1,26=1.1"),
        ("c(n) through c(12) as published for llama.cpp on a B200 with a 32B model", "1=1,12=1.71"),
    )
)


@dataclass(frozen=True)
class Costs:
    """`draft` and the curve in single steps of the target; `what` tells where they come from."""

    what: str
    draft: float
    curve: CostCurve

    def of(self, n_drafts: int) -> float:
        return n_drafts * self.draft + self.curve.ratio(n_drafts + 1)


@dataclass
class Run:
    """The totals of one K and rule over all prompts. `drafts` has one entry a step."""

    n_tokens: int = 0
    n_forgiven: int = 0
    drafts: list[int] = field(default_factory=list)

    def speed(self, costs: Costs) -> float:
        """Tokens in the time of a single step: the ratio to plain decoding."""
        return self.n_tokens / sum(costs.of(n) for n in self.drafts)

    @property
    def tokens_per_step(self) -> float:
        return self.n_tokens / len(self.drafts)


class Reader:
    """A model's context that is moved from text to text, keeping what they have in common."""

    def __init__(self, model: Model, ctx: TreeContext) -> None:
        self.model, self.ctx = model, ctx
        self.chain: list[int] = []

    def read(self, text: Sequence[int]) -> None:
        """Make the chain `text` without its last token."""
        body = list(text[:-1])
        same = first_difference(self.chain, body)
        same = self.ctx.trim(len(body) if same is None else same)
        if body[same:]:
            self.ctx.prefill(body[same:])
        self.chain = body

    def draft(self, text: Sequence[int]) -> tuple[list[int], list[float]]:
        """The greedy chain behind `text`, up to its end token, and the probability of each token."""
        self.read(text)
        tokens, p, last = [], [], text[-1]
        for i in range(MOST):
            rows = self.ctx.decode([last], [i - 1])
            (last,), (logit,) = rows.top_k(0, 1)
            tokens.append(last)
            p.append(round(math.exp(logit - rows.logsumexp(0)), 5))
            if last in self.model.eog:
                break
        self.ctx.drop()
        return tokens, p


class Store:
    """The models' answers by text, in a file of JSON objects that is appended to."""

    def __init__(self, journal: Journal, target: Reader, draft: Reader) -> None:
        self.target, self.draft, self.readers = target, draft, (target, draft)
        self._journal, self._pair = journal, [target.model.fingerprint, draft.model.fingerprint]
        self.known = {entry.get("key", "costs"): entry for entry in journal.entries}
        if any(entry["models"] != self._pair for entry in journal.entries):
            raise SystemExit("the store holds answers of other models; choose another file")

    def append(self, entry: dict[str, Any]) -> dict[str, Any]:
        entry = {**entry, "models": self._pair}
        self._journal.append(entry)
        self.known[entry.get("key", "costs")] = entry
        return entry

    def at(self, text: Sequence[int]) -> dict[str, Any]:
        """The draft behind `text`, and along it the target's tokens [K + 1], entropies in both forms [K + 1], and what
        it gives the drafted tokens as shares of its best ones [K]."""
        key = hashlib.blake2b(np.array(text, dtype=np.int32).tobytes(), digest_size=12).hexdigest()
        if key in self.known:
            return self.known[key]
        draft, p = self.draft.draft(text)
        target = self.target
        target.read(text)
        rows = target.ctx.decode([text[-1], *draft], list(range(-1, len(draft))))
        n = range(len(draft) + 1)
        entry = {"key": key, "draft": draft, "p": p,
            "target": [rows.argmax(i) for i in n],
            "top3": [round(top3_entropy(rows.top_k(i, TOP)[1], rows.logsumexp(i)), 5) for i in n],
            "normalised": [round(normalised_entropy(rows.entropy(i), target.model.n_vocab), 5) for i in n],
            "ratio": [round(ratio_to_best(float(rows.logits(i)[t]), rows.top_k(i, 1)[1][0]), 5)
                      for i, t in enumerate(draft)],
        }  # fmt: skip
        target.ctx.drop()
        return self.append(entry)


def simulate(store: Store, prompts: Sequence[list[int]], n_tokens: int, k: int, least_p: float, rule: LooseRule) -> Run:
    """Continue each of `prompts` by at most `n_tokens` tokens with drafts of up to `k`."""
    end, piece, run = store.target.model.eog, store.target.model.piece, Run()
    for prompt in prompts:
        text = list(prompt)
        while (left := len(prompt) + n_tokens - len(text)) > 0 and text[-1] not in end:
            known = store.at(text)
            n_sure = int((np.cumprod(known["p"]) >= least_p).sum())
            draft = known["draft"][: min(k, left - 1, n_sure)]
            places = zip([text[-1], *draft], draft, known["target"], strict=False)
            literals = [any_literal(*map(piece, place)) for place in places]
            made = judge(draft, known["target"], known[rule.entropy], known["ratio"], literals, end, rule)
            emitted = draft[: made.accepted]
            if not (emitted and emitted[-1] in end):
                emitted.append(known["target"][made.accepted])
            text += emitted
            run.drafts.append(len(draft))
            run.n_tokens += len(emitted)
            run.n_forgiven += len(made.forgiven)
    return run


def curve_of(text: str) -> CostCurve:
    pairs = [point.split("=") for point in text.split(",")]
    return CostCurve(tuple(int(n) for n, _ in pairs), tuple(float(cost) for _, cost in pairs))


def measured(store: Store, again: bool) -> Costs | None:
    """The costs of this machine: from the store, or measured `again`."""
    if again:  # before anything was read, as it empties the contexts
        made = [measure(reader.ctx, sizes=(1, 2, 4, 6, 9, 16, 26), budget_seconds=12.0) for reader in store.readers]
        target, draft = (one.curve for one in made if one is not None)
        store.append({"curve": target.to_dict(), "draft": draft.cost(1)})
    if (known := store.known.get("costs")) is None:
        return None
    curve = CostCurve.from_dict(known["curve"])
    return Costs("this machine, as measured", known["draft"] / curve.cost(1), curve)


def report(runs: dict[int, tuple[Run, Run]], all_costs: Sequence[Costs]) -> None:
    """What was accepted, and then what that makes at each of these costs."""
    print("\nsimulation: K | tokens a step, strict and loose | loose / strict | forgiven in 100 tokens")
    for k, (strict, loose) in runs.items():
        a, b, forgiven = strict.tokens_per_step, loose.tokens_per_step, 100 * loose.n_forgiven / loose.n_tokens
        print(f"simulation: {k:2} | {a:5.2f} {b:5.2f} | {b / a:.2f} | {forgiven:.1f}")
    print("\nsimulation: costs | x plain, strict and loose, at each K")
    for costs in all_costs:
        speeds = {k: (strict.speed(costs), loose.speed(costs)) for k, (strict, loose) in runs.items()}
        best = " and ".join(str(max(speeds, key=lambda k, i=i: speeds[k][i])) for i in (0, 1))
        curve = ", ".join(f"c({k + 1}) {costs.curve.ratio(k + 1):.2f}" for k in runs)
        print(f"simulation: {costs.what}; a draft step costs {costs.draft:.3f}, {curve}")
        ratios = ", ".join(f"K {k}: {strict:.2f} {loose:.2f}" for k, (strict, loose) in speeds.items())
        print(f"simulation:   {ratios}; best K {best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("store", type=Path)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--limit", type=int, help="prompts of each task")
    parser.add_argument("-n", "--max-tokens", type=int, default=64)
    parser.add_argument("--k", type=int, nargs="+", default=KS)
    parser.add_argument("--theta", type=float, default=0.3)
    parser.add_argument("--window", type=int, default=6)
    parser.add_argument("--entropy", choices=ENTROPY_FORMS, default="top3")
    parser.add_argument("--ratio", type=float, default=0.0)
    parser.add_argument("--literals", choices=LITERALS, default="loose")
    parser.add_argument("--least-p", type=float, default=0.0, help="end a draft where the product of its p is less")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--assume", nargs=3, action="append", metavar=("SOURCE", "DRAFT_COST", "CURVE"))
    args = parser.parse_args()
    if not all(1 <= k <= MOST for k in args.k):
        raise SystemExit(f"--k takes numbers from 1 to {MOST}")
    if read_header(args.store) not in (None, STORE):
        raise SystemExit(f"{args.store} is another file, which would be lost: name a new one")
    rule = LooseRule(args.theta, args.window, args.entropy, args.ratio, args.literals)
    prompts = select(read_prompts(args.prompts) if args.prompts else own_prompts(), args.task, args.limit)
    params = ContextParams(n_ctx=4096, n_threads=args.threads)
    files = hub.find_model(args.target), hub.find_model(args.draft)
    with Model.load(files[0]) as target, Model.load(files[1]) as draft, Journal(args.store, STORE) as journal:
        if any(target.piece(i) != draft.piece(i) for i in range(min(target.n_vocab, draft.n_vocab))):
            raise SystemExit("the models have different vocabularies")
        store = Store(journal, *(Reader(model, model.new_context(params)) for model in (target, draft)))
        costs = [made] if (made := measured(store, args.measure)) else []
        costs += [Costs(what, float(cost), curve_of(curve)) for what, cost, curve in args.assume or ASSUMED]
        bos, eos = (target.special_text(token) for token in (target.bos, target.eos))
        template = ChatTemplate(target.chat_template, bos=bos, eos=eos)
        texts = [chat_tokens(target, template, [{"role": "user", "content": prompt.text}]) for prompt in prompts]
        strict = replace(rule, theta=math.inf)
        runs = {}
        for k in args.k:
            one, other = (simulate(store, texts, args.max_tokens, k, args.least_p, how) for how in (strict, rule))
            runs[k] = (one, other)
        print(f"simulation: {len(texts)} prompts x {args.max_tokens} tokens, {rule}, {len(store.known)} texts known")
        report(runs, costs)
        for reader in store.readers:
            reader.ctx.close()


if __name__ == "__main__":
    main()
