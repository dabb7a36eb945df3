"""The styles of what is drawn from a snapshot."""

from __future__ import annotations

import io
import itertools

import pytest
from rich.console import Console
from rich.text import Text
from textual.color import Color
from textual.theme import Theme

from localspec.tui import palette, themes
from localspec.tui.render import styles


def attributes(name: str) -> tuple[object, ...]:
    style = palette.style(name, "none")
    return style.bold, style.dim, style.italic, style.underline, style.reverse


def test_kinds_of_tokens_differ_without_colour() -> None:
    for kinds in (
        (styles.ACCEPTED, styles.BONUS, styles.FORGIVEN, styles.REFUSED, styles.ROOT),
        (styles.TINT_ACCEPTED, styles.TINT_BONUS, styles.TINT_FORGIVEN, styles.ROOT),
    ):
        assert all(attributes(a) != attributes(b) for a, b in itertools.combinations(kinds, 2))


def test_everything_that_is_drawn_has_a_look() -> None:
    assert set(styles.NAMES) <= set(palette.NAMES)


def test_no_colour_means_none() -> None:
    assert all(palette.style(name, "none").color is None for name in palette.NAMES)


def test_ansi_leaves_colours_to_the_terminal() -> None:
    colours = [palette.style(name, "ansi").color for name in palette.NAMES]
    assert all(colour is None or (colour.number is not None and colour.number < 16) for colour in colours)


def test_a_console_with_the_theme_knows_the_names() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", theme=palette.rich_theme("none"))
    console.print(Text("yes", style=styles.ACCEPTED), end="")
    assert out.getvalue() == "\x1b[1myes\x1b[0m"


@pytest.mark.parametrize("theme", themes.OWN, ids=lambda theme: theme.name)
def test_words_can_be_read_on_our_themes(theme: Theme) -> None:
    # WCAG 2.1, 1.4.3 for words, 1.4.11 for lines and marks
    faint = (styles.LINE, styles.SPACE)
    for name in palette.NAMES:
        colour = palette.style(name, themes.tone_of(theme)).color
        if colour is not None:
            least = 3.0 if name in faint else 4.5
            for ground in (theme.background, theme.surface):
                assert contrast(colour.get_truecolor().hex, str(ground)) >= least, (name, ground)
    assert contrast(theme.variables["block-cursor-foreground"], theme.variables["block-cursor-background"]) >= 4.5


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """WCAG 2.1's relative luminance."""
    parts = [part / 255 for part in Color.parse(colour).rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
