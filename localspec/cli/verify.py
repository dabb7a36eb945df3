"""`localspec verify`: is speculated text the text of plain decoding?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.accepting import AcceptOptions
from localspec.cli.options import (
    EngineOptions,
    LogOptions,
    MethodOptions,
    PromptOptions,
    simple_sampling,
    with_options,
)
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.methods.acceptance import Acceptance
    from localspec.verify import Verdict

#: top-2 gap in logits below which a greedy difference counts as a near tie
DEFAULT_EPS = 0.05

EPILOG = """Exit code: 0 when all texts are identical or differ first at a near tie (greedy only) or, with a lossy
--accept, at a forgiven draft; else 1.

Examples:

localspec verify --limit 1

localspec verify --task edit --temp 0.8 --seed 7 --json
"""


def register(app: typer.Typer) -> None:
    app.command("verify", epilog=EPILOG)(verify)


@with_options
def verify(
    engine: EngineOptions,
    how: MethodOptions,
    which: PromptOptions,
    accepting: AcceptOptions,
    logs: LogOptions,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Tokens of an answer.")] = 128,
    seed: Annotated[int, typer.Option("--seed", help="Seed for --temp above 0.")] = 1,
    temp: Annotated[float, typer.Option("--temp", help="Temperature.")] = 0.0,
    eps: Annotated[
        float, typer.Option("--eps", min=0.0, help="Top-2 gap in logits below which a difference is a near tie.")
    ] = DEFAULT_EPS,
    governed: Annotated[
        bool, typer.Option("--governed", help="Speculate only where it pays, instead of at every step.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare speculated text with plain text, token by token."""
    logs.set_up()
    prompts = which.prompts()
    if how.method == "plain":
        raise UsageError("--method plain leaves nothing to compare with plain decoding", "auto, ptd or lookup")
    sampling = simple_sampling(temp, seed)
    acceptance = accepting.acceptance(sampling, how.method)
    if acceptance.draft_sampling:
        raise UsageError(
            "--draft-sampling keeps the distribution, not the text: there is nothing to compare", "leave it out"
        )

    from localspec.cli.answer import open_session
    from localspec.cli.console import progress_bar
    from localspec.machine import load_native

    load_native()
    from localspec import verify as verifier
    from localspec.describe import describe

    with open_session(engine, how.method, bank=how.bank) as session, progress_bar() as bar:
        verdicts = verifier.verify(
            session,
            prompts,
            session.method_name,
            sampling=sampling,
            max_tokens=max_tokens,
            governed=governed,
            acceptance=acceptance,
            progress=lambda done, total: bar("verifying", done / total),
        )
        about, method = describe(session), session.method_name
    failed = [verdict for verdict in verdicts if not verdict.passes(eps, sampling.greedy)]
    if as_json:
        content = {"header": about, "method": method, **acceptance.to_dict(), "lossless": acceptance.lossless,
                   "temperature": temp, "seed": seed, "eps": eps, "passed": not failed,
                   "prompts": [verdict.to_dict() for verdict in verdicts]}  # fmt: skip
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    else:
        _show(about, method, acceptance, verdicts, eps, sampling.greedy)
    if failed:
        raise typer.Exit(1)


def _show(
    about: dict[str, Any], method: str, acceptance: Acceptance, verdicts: list[Verdict], eps: float, greedy: bool
) -> None:
    from localspec.cli.console import console

    out = console(stderr=False)

    def say(line: str) -> None:
        out.print(line, markup=False, soft_wrap=not out.is_terminal)

    say(f"{about['model']}, {about['mode']} mode, {about['build']}: {method} against plain")
    if not acceptance.lossless:
        say(f"{acceptance} is lossy: a text may part from plain where a draft is forgiven, and nowhere before")
    for verdict in verdicts:
        difference = verdict.divergence
        if difference is None:
            continue
        judgement = "forgiven" if verdict.by_forgiving else "near tie" if verdict.passes(eps, greedy) else "DIFFERENT"
        plain = _token(difference.plain, difference.plain_text)
        other = _token(difference.speculated, difference.speculated_text)
        say(
            f"{verdict.prompt_id}: {judgement} at token {difference.index}: plain {plain}, speculated {other}, "
            f"top-2 gap {difference.gap:.4f}" + ("" if difference.between_best else ", not between the two best")
        )
    identical = sum(verdict.divergence is None for verdict in verdicts)
    lossy = sum(verdict.by_forgiving for verdict in verdicts)
    ties = sum(verdict.divergence is not None and verdict.passes(eps, greedy) for verdict in verdicts) - lossy
    drafted, steps = sum(v.n_drafted for v in verdicts), sum(v.n_steps for v in verdicts)
    tokens = sum(verdict.n_tokens for verdict in verdicts)
    counts = [f"{identical} of {len(verdicts)} identical", f"{ties} near ties"]
    if not acceptance.lossless:
        counts.append(f"{lossy} parted where a draft was forgiven")
    say(", ".join([*counts, f"{len(verdicts) - identical - ties - lossy} different"]))
    say(f"{tokens} tokens compared; the speculated runs took {steps} steps and verified {drafted} drafts")
    if not acceptance.lossless:
        say(f"{sum(len(verdict.forgiven) for verdict in verdicts)} drafts were forgiven")
    if not drafted:
        say(
            "nothing was drafted"
            + (f" ({about['tree_limit']})" if about["tree_limit"] else "")
            + ", so this shows little"
        )


def _token(token: int | None, text: str) -> str:
    return "the end" if token is None else f"{token} {text!r}"
