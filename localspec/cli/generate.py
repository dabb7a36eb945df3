"""`localspec generate`: one prompt, one answer."""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
from typing import Annotated, Any

import typer

from localspec.cli.accepting import AcceptOptions
from localspec.cli.options import EngineOptions, LimitOptions, LogOptions, MethodOptions, SamplingOptions, with_options
from localspec.cli.streams import read_stdin
from localspec.errors import UsageError

EPILOG = """Examples:

localspec generate "Name three uses of a brick."

cat notes.txt | localspec generate - --system "Summarise in one line." --temp 0

localspec generate --json -n 64 "Say hello." | jq .text
"""


def register(app: typer.Typer) -> None:
    app.command("generate", epilog=EPILOG)(generate)


@with_options
def generate(
    engine: EngineOptions,
    how: MethodOptions,
    sampling: SamplingOptions,
    accepting: AcceptOptions,
    limits: LimitOptions,
    logs: LogOptions,
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; - or nothing reads it from stdin.", show_default=False)
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="A system message before the prompt.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of streaming.")] = False,
) -> None:
    """Answer one prompt and exit."""
    from localspec.cli.answer import open_session, run
    from localspec.cli.console import interrupt_flag, note, status_line, write_answer

    logs.set_up()
    if raw and system is not None:
        raise UsageError("--raw and --system exclude each other", "write the system message into the prompt")
    params = sampling.sampling()
    if params.seed in (None, -1):
        # chosen here, so that the JSON can tell it
        params = dataclasses.replace(params, seed=secrets.randbelow(1 << 31))
    acceptance = accepting.acceptance(params, how.method)
    limits.limits()
    text = _read_prompt(prompt)
    with open_session(engine, how.method, bank=how.bank) as session:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        tokens = session.raw_prompt(text) if raw else session.chat_prompt(messages)
        end = limits.limits(() if raw else session.template.stops)
        with interrupt_flag() as interrupted:
            events = session.generate(tokens, params, end, cancelled=interrupted, acceptance=acceptance)
            answer = run(events, (lambda text: None) if as_json else write_answer)
        if as_json:
            more: dict[str, Any] = {
                "seed": params.seed,
                "model": session.name,
                "gguf_name": session.model.gguf_name,
                "draft": None if session.draft is None else session.draft.name,
                "mode": session.ctx.mode,
            }
            told = answer.to_dict(session.method_name, acceptance, **more)
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
        else:
            if not answer.text.endswith("\n"):
                write_answer("\n")
            note(status_line(answer.done, answer.method, *answer.notes[-1:]))
    if answer.done.reason == "cancelled":
        raise typer.Exit(130)


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise UsageError("there is no prompt", "give it as an argument, or pipe it to stdin")
    if prompt is None or prompt == "-":
        prompt = read_stdin()
    if not prompt.strip():
        raise UsageError("the prompt is empty", "give it as an argument, or pipe it to stdin")
    if not prompt.isprintable() and any("\ud800" <= char <= "\udfff" for char in prompt):
        # how Python hands over bytes of the command line that it cannot read
        raise UsageError("the prompt is not UTF-8 text", "pipe it to stdin as UTF-8")
    return prompt
