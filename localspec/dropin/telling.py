"""Warnings about what is ignored, at the place of the program that asked for it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_HERE = str(Path(__file__).parent)


def tell(text: str) -> None:
    """Warn the caller of this package. Python shows a warning once a place."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(text, stacklevel=level)
