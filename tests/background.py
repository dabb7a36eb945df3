"""Work that tests only wait for, such as compiling: done beside the other tests, as far as processors are idle.

    def built(background: Background) -> Path:
        folder = background.folder("build")
        background.run("cmake", "-S", SOURCES, "-B", folder)
        return folder

    @waits_for(built)
    def test_it_is_there(background: Background) -> None:
        assert (background.result(built) / "CMakeCache.txt").exists()

Jobs of the tests that were selected begin with the session, and these tests come last: see conftest.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock, Semaphore
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

#: no other test is to wait for it
LOW_PRIORITY = [nice, "-n", "19"] if (nice := shutil.which("nice")) else []
OUTPUT: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
}
#: a program can be ended with all that it started; a session of its own could bring a priority of its own
GROUP: dict[str, Any] = {"process_group": 0} if os.name == "posix" and sys.version_info >= (3, 11) else {}


class Background:
    """Jobs are functions of this object, and of more arguments if need be. Each runs once, and may wait for others.

    They see the environment as it was, not as the test sets it that happens to run: `environ`, and `run` alone.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.environ = root, dict(os.environ)
        self._pool = ThreadPoolExecutor(32)  # they wait for programs, and for each other
        self._processors = Semaphore(os.cpu_count() or 1)
        self._lock = Lock()
        self._jobs: dict[Any, Future[Any]] = {}
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = False

    def begin(self, job: Callable[..., T], *args: Any) -> Future[T]:
        with self._lock:
            if (job, args) not in self._jobs:
                self._jobs[job, args] = self._pool.submit(job, self, *args)
            return self._jobs[job, args]

    def result(self, job: Callable[..., T], *args: Any) -> T:
        """What the job returns; if it fails or skips, the test does."""
        return self.begin(job, *args).result()

    def folder(self, name: str) -> Path:
        """A new folder that all jobs may look into."""
        folder = self.root / name
        folder.mkdir()
        return folder

    def run(self, *command: str | Path, cwd: Path | None = None, **environ: str) -> str:
        """The output of a program, when a processor is free for it; a failure of the test when the program fails."""
        options = {"cwd": cwd or self.root, "env": {**self.environ, **environ}, **OUTPUT, **GROUP}
        with self._processors:
            if self._closed:
                pytest.skip("the session is over")
            with subprocess.Popen([*LOW_PRIORITY, *command], **options) as program:
                self._running.add(program)
                output, _ = program.communicate()
                self._running.discard(program)
        return checked(command, program.returncode, output)

    def close(self) -> None:
        """End what still runs."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for program in list(self._running) if GROUP else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGTERM)
        self._pool.shutdown()


def waits_for(job: Callable[..., object], *args: Any) -> pytest.MarkDecorator:
    """The mark of a test that waits for a job."""
    return pytest.mark.background.with_args(job, *args)


def run(*command: str | Path) -> str:
    """The output of a quick program, at once; a failure of the test when the program fails."""
    done = subprocess.run(command, timeout=300, check=False, **OUTPUT)
    return checked(command, done.returncode, done.stdout)


def checked(command: Sequence[str | Path], status: int, output: str) -> str:
    if status != 0:
        pytest.fail(f"{' '.join(map(str, command))}: exit code {status}\n{output}", pytrace=False)
    return output
