"""The conversation that is shown: its messages, where they stand on the page, and that it is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from localspec.errors import LocalspecError
from localspec.tui import palette
from localspec.tui.conversation import Conversation, Message
from localspec.tui.drawing import Asked, Piece, Remark
from localspec.tui.growing import GrowingText, GrowingTint, text_pieces, tinted_pieces
from localspec.tui.store import Store
from localspec.tui.turn import Turn
from localspec.tui.widgets.conversation import ConversationView

log = logging.getLogger(__name__)

_ENDS = {"length": "cut at the limit", "cancelled": "stopped", "error": "cut off by an error"}


class Talk:
    """Puts a conversation on the page and into the store. `trouble` is told when it cannot be kept."""

    def __init__(
        self,
        view: ConversationView,
        store: Store | None,
        piece: Callable[[int], str],
        trouble: Callable[[LocalspecError], None],
        *,
        raw: bool = False,
        tint: bool = False,
    ) -> None:
        self.conversation = Conversation()
        self.tint = tint
        self.raw = raw
        self._view, self._store, self._piece, self._trouble = view, store, piece, trouble
        #: where messages begin on the page
        self._marks: list[int] = []
        #: the answers of this run by the index of their message
        self._turns: dict[int, Turn] = {}
        self._turn: Turn | None = None
        self._growing: GrowingText | GrowingTint = GrowingText(raw)
        self._welcome: Remark | None = None

    @property
    def questions(self) -> list[str]:
        """All questions in order."""
        return [message.content for message in self.conversation.messages if message.role == "user"]

    def welcome(self, text: str) -> None:
        """What an empty page says."""
        self._welcome = Remark(text)
        self._show_welcome()

    def show(self, conversation: Conversation) -> None:
        """Show this conversation instead."""
        if conversation is not self.conversation:
            self._turns = {}
        self.conversation = conversation
        self._marks = []
        pieces: list[Piece] = []
        for index, message in enumerate(conversation.messages):
            self._marks.append(len(pieces))
            pieces += self._pieces(index, message)
        self._view.cut(0)
        self._view.add(*pieces)
        self._show_welcome()
        if self._turn is not None:
            self._show_growing(self._turn)

    def ask(self, text: str) -> None:
        """A question, kept at once."""
        if not self.conversation.messages and len(self._view) == 1:
            self._view.cut(0)  # the welcome
        self._marks.append(len(self._view))
        self.conversation.ask(text)
        self._view.ask(text)
        self.keep()

    def begin(self) -> Turn:
        """An answer to the last question begins; `grow` adds to it."""
        self._turn = Turn()
        self._marks.append(len(self._view))
        self._show_growing(self._turn)
        return self._turn

    def grow(self, text: str, n_tokens: int) -> None:
        """The answer has new text, with its last `n_tokens` tokens."""
        growing = self._growing
        if isinstance(growing, GrowingText):
            if text:
                self._view.write(*growing.feed(text))
        elif n_tokens and self._turn is not None:
            self._view.write(*growing.feed((self._piece(token), kind) for token, kind in self._turn.tokens[-n_tokens:]))

    def end(self) -> bool:
        """The answer has ended; returns whether it is kept: one that ended before its first word leaves no message."""
        turn, self._turn = self._turn, None
        self._view.end_answer()
        if turn is None:
            return False
        if not turn.text and (turn.done is None or turn.done.reason == "cancelled"):
            self._marks.pop()
            return False
        message = Message.answer(turn.text, turn.done, turn.method)
        self._turns[len(self.conversation.messages)] = turn
        self.conversation.answered(message)
        self._view.add(*self._below(message))
        self.keep()
        return True

    def take_back(self, index: int) -> str:
        """Cut the conversation at a question, and return that."""
        text = self.conversation.edit(index)
        self._cut(index)
        return text

    def drop_answer(self) -> bool:
        """Take the last answer away; returns whether there is a question to answer."""
        left = self.conversation.regenerate()
        self._cut(len(self.conversation.messages))
        return left

    def checkpoint(self) -> None:
        """Save it with what there is of the answer under way."""
        turn = self._turn
        if turn is not None and turn.text:
            message = Message("assistant", turn.text, method=turn.method, partial=True)
            self._save(replace(self.conversation, messages=[*self.conversation.messages, message]))

    def keep(self) -> None:
        """Save it."""
        self._save(self.conversation)

    def _save(self, conversation: Conversation) -> None:
        if self._store is None:
            return
        try:
            self._store.save(conversation)
        except LocalspecError as error:
            log.warning("%s", error)
            self._trouble(error)

    def _cut(self, index: int) -> None:
        if index < len(self._marks):
            self._view.cut(self._marks[index])
            del self._marks[index:]
        self._turns = {at: turn for at, turn in self._turns.items() if at < index}
        self._show_welcome()

    def _show_welcome(self) -> None:
        if self._welcome is not None and not self.conversation.messages:
            self._view.cut(0)
            self._view.add(self._welcome)

    def _show_growing(self, turn: Turn) -> None:
        """Begin to draw an answer, or draw what there is of it anew."""
        self._growing = GrowingTint() if self.tint else GrowingText(self.raw)
        self._view.begin_answer()
        self.grow(turn.text, len(turn.tokens))

    def _pieces(self, index: int, message: Message) -> list[Piece]:
        if message.role == "user":
            return [Asked(message.content)]
        turn = self._turns.get(index)
        if self.tint and turn is not None:
            return [*tinted_pieces(turn.texts(self._piece)), *self._below(message)]
        return [*text_pieces(message.content, self.raw), *self._below(message)]

    @staticmethod
    def _below(message: Message) -> list[Piece]:
        line = summary(message)
        return [Remark(line, palette.MUTED)] if line else []


def summary(message: Message) -> str:
    """The line below an answer; "" when nothing is known about it."""
    stats = message.stats
    parts = []
    if stats.get("n_tokens"):
        parts += [f"{stats.get('tokens_per_second', 0):.1f} tok/s", f"{stats['n_tokens']:.0f} tokens"]
    if stats.get("n_drafted"):
        parts.append(f"{stats.get('tokens_per_step', 0):.2f} tokens/step")
    if message.method:
        parts.append(message.method)
    if message.accept not in (None, "strict", "sequoia"):
        parts.append(f"lossy ({message.accept}): {message.forgiven} tokens forgiven")
    if message.finish_reason in _ENDS:
        parts.append(_ENDS[message.finish_reason])
    return " · ".join(parts)
