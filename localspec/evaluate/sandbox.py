"""Runs code that a model wrote, with tests that decide whether it is right, in a process of its own.

What is guaranteed on Linux and macOS: the process ends after `SECONDS` with all that belongs to its group, its
environment is bare, it starts in an empty folder that is removed afterwards, its input is empty and its output thrown
away, and only tests that came to their end count (they prove it by a random token). On Linux also: at most
`MEMORY` bytes, and, where user namespaces are permitted, no network and no process that outlives it. The rest
(network elsewhere, other programs, files outside the folder) is refused by an audit hook of Python, which stops
accidents, but not native code or an answer written to break out. Files that the user can read, it can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import EngineError, UsageError

SECONDS = 10
MEMORY = 1 << 30
_CHILD = Path(__file__).with_name("child.py")
_LIMITS = {
    "RLIMIT_CPU": SECONDS,
    "RLIMIT_AS": MEMORY,
    "RLIMIT_DATA": MEMORY,
    "RLIMIT_FSIZE": 1 << 20,
    "RLIMIT_CORE": 0,
    # no further process or thread; the kernel does not hold the superuser to that
    "RLIMIT_NPROC": 0,
    "RLIMIT_NOFILE": 64,
}
_MOST_RESULT = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the tests passed; if not, `why`. `own` tells whether the code had namespaces of its own."""

    passed: bool
    why: str = ""
    own: bool = False


def check_sandbox() -> None:
    """Raise `UsageError` where code cannot be run as this module promises."""
    if sys.platform == "win32" or os.name != "posix":
        raise UsageError(
            "code that a model wrote is not run on Windows: there is nothing here to limit it with",
            "run it in WSL or in a container",
        )
    if not sys.executable:
        raise UsageError("the Python interpreter's own path is not known, so no other one can be started")


def run_tests(program: str, test: str, entry_point: str, *, preamble: str = "", seconds: float = SECONDS) -> Outcome:
    """Run `program`, then `test`, then check(entry_point), as HumanEval's tests are made.

    `preamble` is run first, and may fail: what the task gave of the program, with its imports and helpers. Ends after
    `seconds` at the latest. Raises `EngineError` when no process can be started.
    """
    token = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="localspec-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as job,
        tempfile.TemporaryFile() as result,
    ):
        content = {"preamble": preamble, "program": program, "test": test, "entry_point": entry_point, "token": token,
                   "limits": _LIMITS, "result": result.fileno()}  # fmt: skip
        # ASCII: a lone surrogate in a text survives, and the child's compiler refuses it
        job.write(json.dumps(content).encode("ascii"))
        job.seek(0)
        in_time = _run(job.fileno(), result.fileno(), folder, seconds)
        written = os.pread(result.fileno(), _MOST_RESULT, 0).decode("utf-8", "replace")
    layer, _, said = written.partition("\n")
    if in_time and secrets.compare_digest(said.encode(), token.encode()):
        return Outcome(True, own=layer == "own")
    # a token at the end of the time proves nothing: what was left running might have waited for it
    why = "it took too long" if not in_time else said.replace(token, "") or "it ended before its tests did"
    return Outcome(False, " ".join(why.split()), layer == "own")


def _run(job: int, result: int, folder: str, seconds: float) -> bool:
    """Run the child to its end, or to that of the time; whether it came first."""
    # a fixed seed: the order of sets must not decide whether an answer is right
    environment = {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-B", str(_CHILD)],
            stdin=job,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            pass_fds=(result,),
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError(f"no process for the model's code can be started: {error.strerror}") from error
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        # in a session of its own its group has its number, and holds whatever it started
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
