"""The prompt: text of several lines, and a walk through earlier questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import TextArea


class Prompt(TextArea):
    """What the person writes. `actions` are bindings of the app that mean something here alone, such as enter; up and
    down leave the text at its edges."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "up_or_earlier", show=False),
        Binding("down", "down_or_later", show=False),
    ]

    def __init__(self, *, id: str, actions: Iterable[Binding] = ()) -> None:
        super().__init__(id=id, compact=True, soft_wrap=True, placeholder="Ask something")
        # a cursor that blinks repaints the screen twice a second for nothing
        self.cursor_blink = False
        self._actions = {binding.key: f"app.{binding.action}" for binding in actions}
        for binding in actions:  # so that the footer shows them
            shown = replace(binding, action=f"app.{binding.action}", priority=False)
            self._bindings.key_to_bindings.setdefault(binding.key, []).append(shown)
        self._earlier: list[str] = []
        self._at = 0
        self._draft = ""

    def remember(self, questions: Sequence[str]) -> None:
        """What up walks through, the oldest first."""
        self._earlier = [text for i, text in enumerate(questions) if not i or text != questions[i - 1]]
        self._at = len(self._earlier)

    def take(self) -> str:
        """The text, which is removed and remembered."""
        text = self.text
        self.remember([*self._earlier, text])
        self.put("")
        return text

    def put(self, text: str) -> None:
        """Put text in place of what there is, with the cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        # here and not as bindings that go before everything: what was typed just before would still be on its way
        action = self._actions.get(event.key)
        if action is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(action)

    def insert_line(self) -> None:
        """Begin a new line at the cursor."""
        self._replace_via_keyboard("\n", *self.selection)

    def action_up_or_earlier(self) -> None:
        """Up; in the first line to the question before."""
        if not self.cursor_at_first_line or not self._walk(-1):
            self.action_cursor_up()

    def action_down_or_later(self) -> None:
        """Down; in the last line to the question after, and at last to what was being written."""
        if not self.cursor_at_last_line or not self._walk(1):
            self.action_cursor_down()

    def _walk(self, by: int) -> bool:
        to = self._at + by
        if not 0 <= to <= len(self._earlier):
            return False
        if self._at == len(self._earlier):
            self._draft = self.text
        self._at = to
        self.put(self._earlier[to] if to < len(self._earlier) else self._draft)
        return True
