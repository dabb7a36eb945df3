"""`localspec chat --plain`: a conversation in the terminal, as plain streaming text."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.cli.accepting import AcceptOptions
from localspec.cli.options import EngineOptions, LimitOptions, MethodOptions, SamplingOptions
from localspec.cli.streams import not_utf8, strict_stdin
from localspec.errors import ContextLengthError, LocalspecError

if TYPE_CHECKING:
    from localspec.engine.params import SamplingParams
    from localspec.events import Stats
    from localspec.methods.acceptance import Acceptance
    from localspec.session import Session

HELP = """/clear        forget the conversation
/system TEXT  set the system message (empty: none); forgets the conversation
/method NAME  speculate with another method: auto, ptd, heads, ptd+heads, draft, lookup, plain
/stats        totals of this conversation
/help         this list
/exit         leave (ctrl-d does as well)
A line that ends with \\ goes on in the next one, and pasted lines are one message.
Ctrl-c stops an answer, or clears what you typed; twice in a row it leaves."""
#: the commands that take an argument; the others stand alone, else they are a message to the model
WITH_ARGUMENT = ("/system", "/method")


def run(
    engine: EngineOptions,
    how: MethodOptions,
    sampling: SamplingOptions,
    accepting: AcceptOptions,
    limits: LimitOptions,
    *,
    system: str | None,
    pool: bool,
) -> None:
    """Chat until the end of input, as the options say."""
    from localspec.cli.answer import open_session
    from localspec.cli.console import note

    params = sampling.sampling()
    acceptance = accepting.acceptance(params, how.method)
    limits.limits()
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - importing it gives input() line editing and history
    if not sys.stdin.isatty():
        strict_stdin()
    with open_session(engine, how.method, others=True, pool=pool, bank=how.bank) as session:
        if sys.stdin.isatty():
            note(f"{session.name} · {session.ctx.mode} · context {session.ctx.n_ctx} · /help lists the commands")
        if not acceptance.lossless:
            note(f"{acceptance} is lossy: answers do not have the model's distribution")
        _Chat(session, params, limits, session.method_name, system, acceptance).loop()


def command_of(message: str) -> tuple[str, str] | None:
    """The command in a message and its argument; None for a message to the model, which may begin with a slash."""
    name, _, rest = message.strip().partition(" ")
    if not name.startswith("/") or "\n" in name:
        return None
    return (name, rest.strip()) if name in WITH_ARGUMENT or not rest else None


def _more_waiting() -> bool:
    """Whether the terminal has another line already, as after a paste."""
    return os.name != "nt" and bool(select.select([sys.stdin], [], [], 0.02)[0])


class _Chat:
    """The state of one conversation."""

    def __init__(
        self,
        session: Session,
        sampling: SamplingParams,
        limits: LimitOptions,
        method: str,
        system: str | None,
        acceptance: Acceptance | None = None,
    ) -> None:
        self.session, self.sampling, self.limits, self.method, self.system = session, sampling, limits, method, system
        self.acceptance = acceptance
        self.messages: list[dict[str, str]] = []
        self.answers: list[Stats] = []
        self.commands: dict[str, Callable[[str], None]] = {
            "/clear": lambda _: self._clear(),
            "/system": self._set_system,
            "/method": self._set_method,
            "/stats": lambda _: self._say(self._totals()),
            "/help": lambda _: self._say(HELP),
        }

    def loop(self) -> None:
        """Read and answer until the end of input."""
        from localspec.cli.console import Interrupts

        with Interrupts() as self.interrupts:
            while (message := self._read()) is not None:
                try:
                    if not self._obey(message):
                        return
                except LocalspecError as error:
                    hint = "/clear forgets the conversation" if isinstance(error, ContextLengthError) else error.hint
                    self._say(f"error: {error.message}" + (f"\nhint: {hint}" if hint else ""))

    def _obey(self, message: str) -> bool:
        """Do what a message asks for; returns whether the chat goes on."""
        command = command_of(message)
        if command is None:
            if message.strip():
                self._answer(message)
        elif command[0] in ("/exit", "/quit"):
            return False
        elif command[0] in self.commands:
            self.commands[command[0]](command[1])
        else:
            self._say(f"there is no command {command[0]}; /help lists them")
        return True

    def _read(self) -> str | None:
        """A message, possibly of several lines; None at the end of input. Raises `KeyboardInterrupt` for two ctrl-c in
        a row."""
        for is_last in (False, True):
            try:
                with self.interrupts.typing():
                    return self._message()
            except KeyboardInterrupt:
                if sys.stdin.isatty():
                    print()
                if is_last:
                    raise
                self._say("ctrl-c again or /exit leaves")
        return None

    def _message(self) -> str | None:
        terminal = sys.stdin.isatty()
        lines: list[str] = []
        while True:
            try:
                line = input(("... " if lines else "> ") if terminal else "")
            except EOFError:
                if terminal:
                    print()
                return "\n".join(lines) if lines else None
            except UnicodeDecodeError as error:
                raise not_utf8() from error
            goes_on = line.endswith("\\")
            lines.append(line[:-1] if goes_on else line)
            if not goes_on and not (terminal and _more_waiting()):
                return "\n".join(lines)

    def _answer(self, text: str) -> None:
        from localspec.cli.answer import run
        from localspec.cli.console import note, status_line, write_answer

        session = self.session
        system = [{"role": "system", "content": self.system}] if self.system else []
        turn = [*self.messages, {"role": "user", "content": text}]
        tokens = session.chat_prompt([*system, *turn])
        self.interrupts.reset()
        end = self.limits.limits(session.template.stops)
        events = session.generate(
            tokens, self.sampling, end, self.method, self.interrupts.pressed, acceptance=self.acceptance
        )
        answer = run(events, write_answer)
        stats = answer.done.stats
        if not answer.text.endswith("\n"):
            write_answer("\n")
        if answer.done.reason == "cancelled" and not stats.n_tokens:
            self._say("stopped before the answer began; the message is forgotten")
            return
        # kept only now: after an error the conversation is as it was
        self.messages = [*turn, {"role": "assistant", "content": answer.text}]
        self.answers.append(stats)
        context = f"ctx {stats.n_prompt + stats.n_tokens}/{session.ctx.n_ctx}"
        note(status_line(answer.done, answer.method, context, *answer.notes[-1:]))

    def _clear(self) -> None:
        self.messages = []
        self.answers = []
        self.session.clear_pool()
        self._say("the conversation is forgotten")

    def _set_system(self, text: str) -> None:
        self.system = text or None
        self.messages = []
        self._say("the system message is set" if text else "there is no system message now")

    def _set_method(self, name: str) -> None:
        from localspec.cli.console import progress_bar

        if name:
            with progress_bar() as progress:
                self.session.on_progress(progress)
                try:
                    made = self.session.method(name)
                finally:
                    self.session.on_progress(None)
            self.method = name
            self._say(f"the method is {name}" + (f" ({made.name})" if made.name != name else ""))
        else:
            self._say(f"the method is {self.method}; /method NAME changes it")

    def _totals(self) -> str:
        from localspec.bench.report import acceptance

        answers = self.answers
        if not answers:
            return "no answers yet"
        tokens, steps = sum(s.n_tokens for s in answers), sum(s.n_steps for s in answers)
        seconds, native = sum(s.seconds for s in answers), sum(s.native_seconds for s in answers)
        lines = [
            f"{len(answers)} answers, {tokens} tokens in {seconds:.1f} s: {tokens / max(seconds, 1e-9):.1f} tok/s",
            f"{tokens / max(steps, 1):.2f} tokens/step, {native / max(seconds, 1e-9):.0%} of the time in native code",
        ]
        rates = acceptance(answers)
        if rates:
            lines.append("accepted by depth: " + " ".join(f"{rate:.0%}" for rate in rates[:12]))
        forgiven = sum(s.n_forgiven for s in answers)
        if forgiven:
            lines.append(f"lossy: {forgiven} of {tokens} tokens forgiven")
        last = answers[-1]
        lines.append(f"context {last.n_prompt + last.n_tokens} of {self.session.ctx.n_ctx} tokens")
        return "\n".join(lines)

    def _say(self, text: str) -> None:
        from localspec.cli.console import note

        note(text)
