"""Code that a model might write, in the process that is meant for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.evaluate import child, sandbox
from localspec.evaluate.sandbox import Outcome, check_sandbox, run_tests

pytestmark = pytest.mark.skipif(os.name != "posix", reason="code is not run here")
TEST = "def check(candidate):\n    assert candidate(2) == 4\n"


def run(program: str, test: str = TEST, **options: object) -> Outcome:
    return run_tests(program, test, "f", **{"seconds": 30.0, **options})  # type: ignore[arg-type]


def body(*lines: str) -> str:
    return "\n    ".join(["def f(x):", *lines])


def test_a_right_answer_passes_and_a_wrong_one_says_why() -> None:
    assert run(body("return x * x")).passed
    outcome = run(body("return x"))
    assert (outcome.passed, outcome.why) == (False, "AssertionError:")
    assert "ZeroDivisionError" in run(body("return 1 / 0")).why
    assert "SyntaxError" in run("def f(x) return x").why


def test_the_task_gives_imports_and_helpers_but_not_the_function() -> None:
    preamble = "import math\ndef helper(x):\n    return math.floor(x)\ndef f(x):\n    return 4\n"
    assert run(body("return helper(x * x)"), preamble=preamble).passed
    assert run("from __future__ import annotations\n" + body("return 4"), preamble="def f(x: int") == run(
        body("return 4")
    )
    assert "KeyError: 'f'" in run("def g(x):\n    return 4", preamble=preamble).why


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.exit(0)",
        body("raise SystemExit(0)"),
        "import os\n" + body("os._exit(0)"),
        "import os\nos.closerange(0, 100)\n" + body("return 5"),
        body("return 5") + "\ndef check(candidate):\n    pass\n",
        "import os\nfor i in range(3, 64):\n    try:\n        os.write(i, b'own\\n0123456789abcdef0123456789abcdef')\n"
        "    except OSError:\n        pass\n" + body("return 5"),
    ],
)
def test_only_tests_that_came_to_their_end_count(program: str) -> None:
    assert not run(program).passed


@pytest.mark.parametrize("program", [body("while True:", "    pass"), "import time\n" + body("time.sleep(600)")])
def test_what_does_not_end_is_ended(program: str) -> None:
    start = time.monotonic()
    assert run(program, seconds=1.0).why == "it took too long"
    assert time.monotonic() - start < 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS does not hold processes to this limit")
@pytest.mark.parametrize(
    "lines", [("bytearray(1 << 40)",), ("kept = []", "while True:", "    kept.append('x' * 9**7)")]
)
def test_memory_is_limited(lines: tuple[str, ...]) -> None:
    assert "MemoryError" in run(body(*lines)).why


@pytest.mark.parametrize(
    "program",
    [
        "import os\n" + body("while True:", "    os.fork()"),
        "import subprocess\n" + body("subprocess.run(['true'])", "return 4"),
        "import os\n" + body("os.system('true')", "return 4"),
        "import os\n" + body("os.execv('/bin/true', ['true'])"),
        "import multiprocessing\n" + body("multiprocessing.Process(target=print).start()", "return 4"),
        "import os\n" + body("os.kill(os.getppid(), 9)", "return 4"),
        "import ctypes\n" + body("ctypes.CDLL(None)", "return 4"),
    ],
)
def test_no_other_process_is_started_or_ended(program: str) -> None:
    assert "PermissionError" in run(program).why


@pytest.mark.parametrize(
    "lines",
    [
        ("socket.socket()",),
        ("socket.create_connection(('127.0.0.1', 9))",),
        ("socket.getaddrinfo('localhost', 80)",),
        ("import urllib.request", "urllib.request.urlopen('http://127.0.0.1:9')"),
    ],
)
def test_python_has_no_sockets(lines: tuple[str, ...]) -> None:
    outcome = run("import socket\n" + body(*lines, "return 4"))
    assert not outcome.passed
    assert "not allowed" in outcome.why


def test_own_namespaces_have_no_network() -> None:
    """Also for code that gets around Python's own guard, if namespaces are permitted here."""
    code = (
        "import sys, socket\nfrom localspec.evaluate.child import enter_namespaces\n"
        "if not enter_namespaces(): sys.exit(7)\n"
        "import os\nassert os.getpid() == 1\n"
        "try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
        "except OSError: sys.exit(0)\n"
        "sys.exit(1)"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = subprocess.run([sys.executable, "-c", code, port], timeout=60, check=False)
    if done.returncode == 7:
        assert not run(body("return 4")).own
        pytest.skip("namespaces are not permitted here")
    assert done.returncode == 0
    assert run(body("return 4")).own


def test_files_elsewhere_stay_as_they_are(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    for lines in (f"open({str(kept)!r}, 'w')", f"os.remove({str(kept)!r})", f"shutil.rmtree({str(tmp_path)!r})",
                  f"os.rename({str(kept)!r}, 'mine')", f"os.mkdir({str(tmp_path / 'new')!r})"):  # fmt: skip
        assert "PermissionError" in run("import os, shutil\n" + body(lines, "return 4")).why
    for lines in (
        (f"g = os.open({str(tmp_path)!r}, os.O_RDONLY)", "os.close(os.open('kept', os.O_TRUNC, dir_fd=g))"),
        (
            f"g = open({str(kept)!r})",
            "os.chmod(g.fileno(), 0)",
        ),
    ):
        assert "PermissionError" in run("import os\n" + body(*lines, "return 4")).why
    assert kept.stat().st_mode & 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "kept"


def test_the_folder_is_empty_and_may_be_written_in_measure(tmp_path: Path) -> None:
    assert run("import os\n" + body("assert os.listdir('.') == []", "open('a', 'w').write('b')", "return 4")).passed
    lines = (
        "with tempfile.TemporaryDirectory() as made:",
        "    with open(made + '/a', 'w') as a:",
        "        a.truncate(9)",
    )
    assert run("import tempfile\n" + body(*lines, "return 4")).passed
    assert "OSError" in run(body("open('a', 'w').write('b' * (1 << 24))", "return 4")).why


def test_nothing_of_this_process_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "x")
    assert run("import os\n" + body("assert 'SECRET_OF_THE_USER' not in os.environ", "return 4")).passed
    assert "ModuleNotFoundError" in run("import suites").why


def test_input_is_empty_and_output_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert "EOFError" in run(body("return int(input())")).why
    assert run(
        "import sys, os\n"
        + body("for _ in range(100):", "    print('x' * 10**6)", "os.write(2, b'y' * 10**6)", "return 4")
    ).passed
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_nothing_is_left_running() -> None:
    """Not even what left its process group."""
    if not run(body("return 4")).own:
        pytest.skip("namespaces are not permitted here")
    program = "import os, time\nos.setsid()\n" + body("time.sleep(600)")
    assert run(program, seconds=2.0).why == "it took too long"
    deadline = time.monotonic() + 10
    while (left := _children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _children() -> list[str]:
    script = os.fsencode(child.__file__)
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if script in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_sets_have_one_order() -> None:
    """A run must not be right by chance."""
    program = "order = str(set('abcdefghijklmnop'))\n" + body("raise ValueError(order)")
    assert run(program).why == run(program).why


@pytest.mark.parametrize("program", ["x = " + "-" * 200_000 + "1", "(" * 5000, "def f(x): return '\ud800'", "\0"])
def test_odd_programs_are_wrong_and_no_more(program: str) -> None:
    assert not run(program).passed


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.sys, "platform", "win32")
    with pytest.raises(UsageError, match="not run on Windows"):
        check_sandbox()
