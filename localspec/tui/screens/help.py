"""Keys as they are mapped now, and what marks and words of the panel mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui import keys as actions
from localspec.tui import palette
from localspec.tui.render import styles
from localspec.tui.render.glyphs import glyphs
from localspec.tui.screens.base import Sheet

WORDS = (
    ("tok/s", "tokens a second, now and as the mean of the answer; the prompt is not counted"),
    ("1.80× plain", "the speed against plain decoding here: est. is an estimate, until this answer has measured it"),
    ("spec off", "no speculation for a while, as it would not be faster here"),
    ("lossy", "answers do not have the model's distribution: so many tokens were forgiven"),
    ("d4×w3", "the tree of drafts in use: 4 tokens deep, at most 3 ways beside each other"),
    ("tok/step", "tokens that a step of the model brings; plain decoding has 1"),
    ("step 12 · 3/9 taken", "the tree of the last step: 9 tokens were drafted, and 3 of them taken"),
    ("drafts accepted in a step", "the share of steps that took none, one, two .."),
    ("trees, share of steps", "the bank: trees calibrated for this machine, the one in use marked"),
    ("s", "how sure the model is of the drafts; past a threshold on this scale another tree is chosen"),
    ("cost of n nodes", "what a step that verifies n nodes takes, in plain steps"),
    ("ctx", "tokens of the conversation, and how many the context window holds"),
)


class HelpScreen(Sheet[None]):
    """`keys` are those that a person chose, as `localspec.tui.keys.bindings` takes them."""

    TITLE = "Help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "back", show=False),
        Binding("question_mark", "back", show=False),
        Binding("enter", "back", show=False),
    ]

    def __init__(self, keys: actions.Keys | None = None, ascii_only: bool = False) -> None:
        super().__init__(classes="tall")
        self.keys, self.ascii_only = keys or {}, ascii_only

    def body(self) -> Iterable[Widget]:
        self._narrow = self._is_narrow()
        yield VerticalScroll(Static(self._table(self._narrow), id="help"), classes="text")

    def on_resize(self) -> None:
        if self._is_narrow() != self._narrow:
            self._narrow = not self._narrow
            self.query_one("#help", Static).update(self._table(self._narrow))

    def _is_narrow(self) -> bool:
        return self.app.size.width < 76

    def _table(self, narrow: bool) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=14 if narrow else 22)
        table.add_column()
        parts = (*self._keys_by_group(), ("Marks of the tree", self._marks()), ("Words", self._words()))
        for i, (title, rows) in enumerate(parts):
            if i:
                table.add_row()
            table.add_row(Text(title, self.look(palette.TITLE)))
            for left, text in rows:
                table.add_row(left, text)
        return table

    def _keys_by_group(self) -> list[tuple[str, list[tuple[Text, str]]]]:
        """A table for each group of actions; an action without a key is in the command palette alone."""
        chosen = actions.keys_of(self.keys)
        groups: dict[str, list[tuple[Text, str]]] = {}
        for action in actions.ACTIONS:
            names = ", ".join(actions.key_text(key) for key in chosen[action.id]) or "no key"
            style = self.look(styles.STRONG if chosen[action.id] else palette.MUTED)
            groups.setdefault(action.group, []).append((Text(names, style), action.text))
        for key, meaning in actions.RESERVED.items():
            text = meaning[:1].upper() + meaning[1:]
            groups["Application"].append((Text(actions.key_text(key), self.look(styles.STRONG)), text))
        return list(groups.items())

    def _marks(self) -> list[tuple[Text, str]]:
        glyph = glyphs(self.ascii_only)
        return [
            (Text(glyph.root, self.look(styles.ROOT)), "the last token of the text, which the drafts follow"),
            (Text(glyph.accepted, self.look(styles.ACCEPTED)), "drafted, and taken"),
            (Text(glyph.refused, self.look(styles.REFUSED)), "drafted in vain"),
            (Text(glyph.bonus, self.look(styles.BONUS)), "the bonus token, which the model adds to what it took"),
            (
                Text(glyph.forgiven, self.look(styles.FORGIVEN)),
                "forgiven: taken although the model would have gone another way",
            ),
            (Text(glyph.now, self.look(styles.BAR_NOW)), "the tree in use"),
            (Text(" ".join(glyph.spaces[c] for c in " \n\t"), self.look(styles.SPACE)), "a blank, a new line, a tab"),
        ]

    def _words(self) -> list[tuple[Text, str]]:
        return [(Text(word, self.look(styles.STRONG)), text) for word, text in WORDS]
