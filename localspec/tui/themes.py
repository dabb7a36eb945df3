"""Colours of the app: two themes of our own beside those of Textual, and the styles of `palette` in step with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from textual.app import App
from textual.theme import Theme

from localspec.tui.palette import Tone, rich_theme

DEFAULT = "localspec-dark"

OWN = (
    Theme(
        name=DEFAULT,
        primary="#7ab8ff",
        secondary="#5b8fc9",
        accent="#f2c078",
        success="#7fd88f",
        warning="#f2c078",
        error="#ff8080",
        foreground="#dfe5ee",
        background="#12161c",
        surface="#1a2029",
        panel="#242c38",
        dark=True,
        variables={
            "border": "#7ab8ff",
            "border-blurred": "#3a4554",
            "footer-key-foreground": "#f2c078",
            "input-selection-background": "#7ab8ff 35%",
            "block-cursor-background": "#2f5d8f",
            "block-cursor-foreground": "#ffffff",
            "block-cursor-blurred-background": "#2b3543",
        },
    ),
    Theme(
        name="localspec-light",
        primary="#0a58ca",
        secondary="#3f6fb5",
        accent="#8a5a00",
        success="#166c2f",
        warning="#8a5a00",
        error="#b3261e",
        foreground="#1f2328",
        background="#fbfaf7",
        surface="#f2f0ea",
        panel="#e6e3da",
        dark=False,
        variables={
            "border": "#0a58ca",
            "border-blurred": "#c4c0b4",
            "footer-key-foreground": "#8a5a00",
            "input-selection-background": "#0a58ca 25%",
            "block-cursor-background": "#0a58ca",
            "block-cursor-foreground": "#ffffff",
            "block-cursor-blurred-background": "#dcd8cc",
        },
    ),
)

#: names that come first where themes are listed: ours, and those that use the palette of the terminal
FIRST = (*(theme.name for theme in OWN), "ansi-dark", "ansi-light")


def theme_names(available: Mapping[str, Theme]) -> list[str]:
    """The names of themes in the order to show them: ours, those with the terminal's own colours, the others."""
    first = [name for name in FIRST if name in available]
    return [*first, *sorted(set(available) - set(first))]


def tone_of(theme: Theme) -> Tone:
    """Which colours of `palette` go with a theme."""
    if theme.ansi:
        return "ansi"
    return "dark" if theme.dark else "light"


def ansi_color() -> bool | None:
    """What `App.__init__` is to be told: with NO_COLOR, to leave colours to the terminal. Otherwise Textual turns them
    to greys there, which are colours still, and those of the terminal's own palette to black on black."""
    return True if "NO_COLOR" in os.environ else None


def install(app: App[Any]) -> None:
    """Make our themes known to `app`, and let its console know the styles of `palette`, in the tone of its theme now
    and after each change. Call it once, in `App.__init__`."""
    for theme in OWN:
        app.register_theme(theme)
    app.console.push_theme(rich_theme(tone_of(app.current_theme)))

    def follow(_: str) -> None:
        app.console.pop_theme()
        app.console.push_theme(rich_theme(tone_of(app.current_theme)))

    app.watch(app, "theme", follow, init=False)
