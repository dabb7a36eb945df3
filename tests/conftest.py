"""What all tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Commands set logging up for their process, which is that of the tests where they run in it."""
    root = logging.getLogger("localspec")
    before = root.level, root.propagate, list(root.handlers)
    yield
    root.level, root.propagate, root.handlers[:] = before
