"""The server that is put under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.with_server import Target, running_server


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with running_server(tmp_path_factory.mktemp("home")) as server:
        yield server
