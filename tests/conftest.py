"""What all tests share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.background import Background

# threads that wait leave their processor to others, such as those jobs; OpenMP reads it when it is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for the background comes last."""
    items.sort(key=lambda item: item.get_closest_marker("background") is not None)


@pytest.fixture(scope="session", autouse=True)
def background(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    """Jobs in the background; those that the selected tests are marked with have begun."""
    jobs = Background(tmp_path_factory.mktemp("background"))
    for item in request.session.items:
        for mark in item.iter_markers("background"):
            jobs.begin(*mark.args)
    yield jobs
    jobs.close()


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Commands set logging up for their process, which is that of the tests where they run in it."""
    root = logging.getLogger("localspec")
    before = root.level, root.propagate, list(root.handlers)
    yield
    root.level, root.propagate, root.handlers[:] = before
