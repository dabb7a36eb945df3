"""A conversation as it is kept: messages, what each answer took, and the settings it was held with.

JSON is how the store keeps it; `localspec.tui.transcript` writes the same as Markdown. Both are read strictly: a file
that came from elsewhere is refused with what is wrong in it, never half understood.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, cast, get_args

from localspec.errors import UsageError
from localspec.events import DoneEvent
from localspec.tui.checked import Fields, no_surrogates

Role = Literal["user", "assistant"]

FORMAT = "localspec conversation"
VERSION = 1
MAX_TITLE = 60

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
#: of `Stats`, what is kept of an answer; seconds and counts, and the rates made of them
_STATS = (
    "n_prompt",
    "n_cached",
    "n_tokens",
    "n_steps",
    "n_drafted",
    "n_accepted",
    "prompt_seconds",
    "seconds",
    "tokens_per_second",
    "tokens_per_step",
)


@dataclass(frozen=True)
class Message:
    """One message. What follows `content` belongs to answers alone.

    `stats` are numbers by their names in `localspec.events.Stats`; `method` is what drafted, `accept` the rule that
    drafts were accepted by, `forgiven` how many tokens were accepted against the model. `finish_reason` is that of the
    `DoneEvent`, "error" after a failure. `partial` marks an answer that was cut off before the model was done.
    """

    role: Role
    content: str
    stats: Mapping[str, float] = field(default_factory=dict)
    method: str | None = None
    accept: str | None = None
    finish_reason: str | None = None
    forgiven: int = 0
    partial: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", no_surrogates(self.content))

    @classmethod
    def answer(cls, content: str, done: DoneEvent | None, method: str | None = None) -> Message:
        """An answer with the figures of its end; `done` None for one that a failure cut off."""
        if done is None:
            return cls("assistant", content, method=method, finish_reason="error", partial=True)
        return cls(
            "assistant",
            content,
            stats={name: getattr(done.stats, name) for name in _STATS},
            method=method,
            accept=done.accept,
            finish_reason=done.reason,
            forgiven=done.stats.n_forgiven,
            partial=done.reason == "cancelled",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`; what says nothing is left out."""
        bare = asdict(Message(self.role, ""))
        values = {**asdict(self), "stats": dict(self.stats)}
        return {name: value for name, value in values.items() if name in ("role", "content") or value != bare[name]}

    @classmethod
    def from_dict(cls, data: object, what: str = "the message") -> Message:
        """Rebuild from `to_dict` data. Raises `UsageError` that names `what` and the field."""
        fields = Fields(data, what)
        role = fields.text("role")
        if role not in get_args(Role):
            raise UsageError(f"{what}: role is {role!r}", f"one of {', '.join(get_args(Role))}")
        made = cls(
            role=cast(Role, role),
            content=fields.text("content"),
            stats=fields.numbers("stats"),
            method=fields.optional_text("method"),
            accept=fields.optional_text("accept"),
            finish_reason=fields.optional_text("finish_reason"),
            forgiven=fields.count("forgiven") or 0,
            partial=fields.flag("partial"),
        )
        fields.refuse_others()
        return made


def new_id() -> str:
    """A name for a new conversation: sorts by time, and serves as a file name everywhere."""
    return f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def now() -> str:
    """The time as conversations keep it: UTC, ISO 8601, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def one_line(text: str, most: int = MAX_TITLE) -> str:
    """`text` as a title: one line of at most `most` characters."""
    line = " ".join(no_surrogates(text).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


@dataclass
class Conversation:
    """Messages in turn, and the settings of the next answer.

    `created` and `updated` are UTC in ISO 8601. `name` is a title that a person gave. `model`, `method`, `max_tokens`,
    `accept` and `sampling` (fields of `SamplingParams` by name) are None or empty where nothing was chosen. `system` is
    the system message.
    """

    id: str = field(default_factory=new_id)
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)
    name: str | None = None
    model: str | None = None
    method: str | None = None
    system: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    accept: str | None = None
    messages: list[Message] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What it is called in lists: the given name, else the beginning of the first question."""
        first = next((message.content for message in self.messages if message.role == "user"), "")
        return self.name or one_line(first) or "new conversation"

    def rename(self, name: str | None) -> None:
        """Give it a title of one line; nothing or white space goes back to the first question."""
        self.name = one_line(name or "") or None

    def ask(self, text: str) -> None:
        """Add a question."""
        self._add(Message("user", text))

    def answered(self, message: Message) -> None:
        """Add an answer."""
        self._add(message)

    def edit(self, index: int) -> str:
        """Cut the conversation at message `index`, a question, and return its text to be written anew."""
        if not 0 <= index < len(self.messages) or self.messages[index].role != "user":
            raise UsageError(f"message {index} is no question that could be edited")
        text = self.messages[index].content
        del self.messages[index:]
        self.updated = now()
        return text

    def regenerate(self) -> bool:
        """Drop the answer at the end; returns whether there is a question left to answer."""
        if self.messages and self.messages[-1].role == "assistant":
            self.messages.pop()
            self.updated = now()
        return bool(self.messages)

    def last_answer(self) -> str | None:
        """The text of the latest answer; None before there is one."""
        return next((message.content for message in reversed(self.messages) if message.role == "assistant"), None)

    def request(self) -> list[dict[str, str]]:
        """The messages as a model is to read them, the system message first."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *({"role": message.role, "content": message.content} for message in self.messages)]

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self.updated = now()

    def about(self) -> dict[str, Any]:
        """What a list shows of it."""
        return {
            "id": self.id,
            "title": self.title,
            "created": self.created,
            "updated": self.updated,
            "model": self.model,
            "n_messages": len(self.messages),
        }

    def settings(self) -> dict[str, Any]:
        """The settings that were chosen."""
        values = {
            "name": self.name,
            "method": self.method,
            "system": self.system,
            "sampling": self.sampling or None,
            "max_tokens": self.max_tokens,
            "accept": self.accept,
        }
        return {name: value for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "about": self.about(),
            "settings": self.settings(),
            "messages": [message.to_dict() for message in self.messages],
        }

    @classmethod
    def from_dict(cls, data: object) -> Conversation:
        """Rebuild from `to_dict` data. Raises `UsageError` that names what is wrong."""
        fields = Fields(data, "the conversation")
        check_version(fields.text("format"), fields.count("version"))
        made = from_parts(fields.value("about"), fields.value("settings"))
        messages = fields.value("messages")
        if not isinstance(messages, list):
            raise UsageError("the conversation: messages is not a list")
        fields.refuse_others()
        made.messages = [Message.from_dict(item, f"message {number}") for number, item in enumerate(messages, 1)]
        return made

    def to_json(self) -> str:
        """The JSON text that the store keeps."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Conversation:
        """Read `to_json` text. Raises `UsageError`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"this is not JSON: {error}") from error
        return cls.from_dict(data)


def check_version(form: str, version: int | None) -> None:
    """Raise `UsageError` unless this program wrote, or could have written, a file of this format."""
    if form != FORMAT:
        raise UsageError(f"this is no conversation of localspec: its format is {form!r}")
    if version != VERSION:
        raise UsageError(f"it has version {version} of the format, not {VERSION}", "a newer localspec wrote it")


def from_parts(about: object, settings: object) -> Conversation:
    """A conversation without messages, from its `about` and `settings`. Raises `UsageError`."""
    head, rest = Fields(about, "about"), Fields(settings, "settings")
    name = head.text("id")
    if not _ID.fullmatch(name):
        raise UsageError(f"about: {name!r} is no id of a conversation", "letters, digits, - and _")
    # both are made of the messages, so that they are not kept
    for made_anew in ("title", "n_messages"):
        head.value(made_anew)
    made = Conversation(
        id=name,
        created=head.time("created"),
        updated=head.time("updated"),
        name=one_line(rest.optional_text("name") or "") or None,
        model=head.optional_text("model"),
        method=rest.optional_text("method"),
        system=rest.optional_text("system"),
        sampling=rest.mapping("sampling"),
        max_tokens=rest.count("max_tokens"),
        accept=rest.optional_text("accept"),
    )
    head.refuse_others()
    rest.refuse_others()
    return made
