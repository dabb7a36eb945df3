"""How the chat begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.tui import keys
from localspec.tui.backend import OpenRequest
from localspec.tui.config import Config
from localspec.tui.conversation import Conversation
from localspec.tui.logbook import LogLine

#: what people know from the plain chat, and the actions that do it here
COMMANDS = {
    "/clear": "clear",
    "/exit": "quit",
    "/help": "help",
    "/method": "method",
    "/model": "model",
    "/quit": "quit",
    "/system": "system",
}


@dataclass(frozen=True)
class Start:
    """How the app begins: the model to open, and the lines about its configuration that it tells.

    What follows goes before the configuration, and is not written there: the most updates a second, `sampling` (as in
    the configuration), the system message, the rule to accept drafts by, and the theme. `log_lines` gives the log.
    """

    request: OpenRequest = field(default_factory=OpenRequest)
    problems: Sequence[str] = ()
    fps: float | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None
    accept: str | None = None
    theme: str | None = None
    ascii_only: bool = False
    log_lines: Callable[[], Sequence[LogLine]] = list

    def conversation(self, config: Config) -> Conversation:
        """An empty one."""
        sampling = {**config.sampling, **self.sampling}
        return Conversation(
            system=config.system if self.system is None else self.system or None,
            max_tokens=sampling.pop("max_tokens", None),
            sampling=sampling,
            accept=self.accept,
        )


def welcome(chosen: keys.Keys) -> str:
    """What an empty page says, where a person chose these keys."""
    mapped = keys.keys_of(chosen)
    parts = {"help": "explains the keys", "model": "has other models"}
    known = [f"{keys.key_text(mapped[name][0])} {text}" for name, text in parts.items() if mapped[name]]
    return "Ask something.  " + ", ".join([*known, "ctrl+p finds everything."])
