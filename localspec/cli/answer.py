"""What `chat` and `generate` share: opening a session, and running one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from localspec.cli.console import interrupt_flag, progress_bar
from localspec.cli.options import EngineOptions, named_as_options
from localspec.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from localspec.events import DoneEvent, Event
    from localspec.methods.acceptance import Acceptance
    from localspec.session import Session


@contextmanager
def open_session(
    engine: EngineOptions,
    method: str | None,
    *,
    others: bool = False,
    pool: bool = True,
    bank: str | None = None,
    hidden: bool = False,
) -> Iterator[Session]:
    """A session as the options say, with progress bars while it is made; see `Session.open` on `pool` and `bank`, its
    `task`, and on the default of `method`, and `ContextParams` on `hidden`. With `others` there may be answers with
    other methods than `method`; else a draft model that it makes no use of is refused."""
    from localspec.machine import load_native

    context = replace(engine.context(), hidden=hidden)
    load_native()
    draft = engine.drafting()
    if not others and method is not None:
        check_draft_use(engine, [method])
    from localspec.session import Session

    # an exception that ctrl-c raised in a callback of the library, which loading is full of, would be lost
    with named_as_options(), progress_bar() as bar, interrupt_flag() as pressed:

        def progress(what: str, share: float) -> None:
            if pressed():
                raise KeyboardInterrupt
            bar(what, share)

        session = Session.open(
            engine.model,
            context=context,
            method=method,
            n_gpu_layers=engine.gpu_layers,
            pool=pool,
            heads=engine.heads or (),
            draft=draft,
            task=bank,
            progress=progress,
        )
        if pressed():
            session.close()
            raise KeyboardInterrupt
    session.on_progress(None)
    with session:
        yield session


def check_draft_use(engine: EngineOptions, methods: Sequence[str]) -> None:
    """Raise `UsageError` for a draft model with which none of `methods` drafts. Needs the native library."""
    from localspec.methods.registry import DRAFT_NAMES, check_method

    for method in methods:
        check_method(method)
    if engine.draft is not None and not set(methods) & set(DRAFT_NAMES):
        raise UsageError(
            f"{', '.join(methods)} does not draft with a second model, so --draft {engine.draft} would do nothing",
            "leave out --draft, or choose the method draft",
        )


@dataclass
class Answer:
    """One finished answer."""

    done: DoneEvent
    method: str
    text: str = ""
    notes: list[str] = field(default_factory=list)
    #: ids of the tokens at the positions `done.stats.forgiven`
    forgiven: list[int] = field(default_factory=list)

    def why_off(self, asked: str) -> str | None:
        """Why this answer ended without speculation, None if it speculated; `asked` is the method asked for."""
        from localspec.events import OFF, ON

        if asked == "plain":
            return "plain decoding was asked for"
        last = next((text for text in reversed(self.notes) if text.startswith((OFF, ON))), "")
        if last.startswith(OFF):
            return last.removeprefix(OFF)
        return None if self.done.stats.n_drafted else "no draft was worth verifying"

    def to_dict(self, asked: str, acceptance: Acceptance | None = None, **more: Any) -> dict[str, Any]:
        """The answer as JSON data; `asked` is the method that was asked for, `acceptance` how drafts were accepted."""
        stats = self.done.stats
        reason = self.why_off(asked)
        return {
            "text": self.text,
            "finish_reason": self.done.reason,
            "stop": self.done.stop,
            "usage": {
                "prompt_tokens": stats.n_prompt,
                "cached_tokens": stats.n_cached,
                "completion_tokens": stats.n_tokens,
                "total_tokens": stats.n_prompt + stats.n_tokens,
            },
            "timings": {
                "prompt_seconds": stats.prompt_seconds,
                "seconds": stats.seconds,
                "native_seconds": stats.native_seconds,
                "propose_seconds": stats.propose_seconds,
                "tokens_per_second": stats.tokens_per_second,
            },
            "speculation": {
                "mode": "on" if reason is None else "off",
                "reason": reason,
                "method": self.method,
                "lossless": self.done.lossless,
                "steps": stats.n_steps,
                "tokens_per_step": stats.tokens_per_step,
                "drafted": stats.n_drafted,
                "accepted": stats.n_accepted,
                **_rule(self.done.accept, acceptance),
                "forgiven": stats.n_forgiven,
                "forgiven_at": stats.forgiven,
                "forgiven_ids": self.forgiven,
                "steps_reaching_depth": stats.steps_reaching,
                "accepted_at_depth": stats.accepted_at,
                "notes": self.notes,
            },
            **more,
        }


def run(events: Iterable[Event], write: Callable[[str], None] = lambda text: None) -> Answer:
    """Consume a generation; `write` gets the text as it becomes certain."""
    from localspec.events import DoneEvent, NoteEvent, StepEvent

    parts: list[str] = []
    notes: list[str] = []
    forgiven: list[int] = []
    method = "plain"
    for event in events:
        if isinstance(event, StepEvent):
            method = event.method
            forgiven += [event.tokens[i] for i in event.forgiven]
        if isinstance(event, StepEvent | DoneEvent):
            parts.append(event.text)
            write(event.text)
        if isinstance(event, NoteEvent):
            notes.append(event.text)
        if isinstance(event, DoneEvent):
            return Answer(event, method, "".join(parts), notes, forgiven)
    raise EngineError("the generation ended without an end event")


def _rule(accept: str, acceptance: Acceptance | None) -> dict[str, Any]:
    """The rule that was used, with its parameters if it is the one that was asked for."""
    asked = {} if acceptance is None else acceptance.to_dict()
    return asked if asked.get("accept") == accept else {"accept": accept}
