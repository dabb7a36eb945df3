"""Libraries of others over the drop-in: they have to be in the process, after all that the product itself brings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.install import site_packages_of


@pytest.fixture
def others_libraries() -> Iterator[None]:
    """Makes what `tests/clients/install.py` installed importable, where it did."""
    place = os.environ.get("LOCALSPEC_CLIENTS")
    found = [str(path) for path in site_packages_of(Path(place))] if place else []
    sys.path += found
    yield
    for path in found:
        sys.path.remove(path)
