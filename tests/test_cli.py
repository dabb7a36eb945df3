"""The command line as people and scripts meet it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import localspec as package
from localspec.cli import app
from localspec.cli.options import SamplingOptions
from localspec.errors import UsageError
from tests.with_model import calibrated_home, localspec

COMMANDS = ("chat", "generate", "bench", "verify", "calibrate", "doctor", "models", "pull")
#: what llama.cpp and ggml would write to the terminal
NATIVE = re.compile(r"llama_|ggml_|load_tensors|print_info|graph_reserve")
ESCAPE = "\x1b"


def invoke(*args: str, **options: Any) -> Any:
    return CliRunner().invoke(app, list(args), prog_name="localspec", **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options that name the model, on one thread and with a small context."""
    with calibrated_home(tmp_path_factory.mktemp("home")) as path:
        yield ["-m", str(path), "-t", "1", "-c", "512"]


def one_error(result: Any) -> str:
    """The error line of a command that printed nothing else than one error and perhaps a hint."""
    stdout, stderr = result.stdout, result.stderr
    lines = stderr.splitlines()
    assert stdout == ""
    assert lines[0].startswith("error: ")
    assert [line.split(":")[0] for line in lines[1:]] in ([], ["hint"]), stderr
    return str(lines[0])


# --- help, version, errors: no model needed ---


def test_every_command_is_listed_and_explains_itself() -> None:
    top = invoke("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", top)
        result = invoke(command, "--help")
        assert result.exit_code == 0
        assert "Usage:" in result.stdout
    assert "Examples:" in invoke("generate", "--help").stdout


def test_help_needs_neither_the_native_library_nor_numpy() -> None:
    code = "import sys; from localspec.cli import app; bad = {'numpy', 'llama_cpp', 'jinja2', 'matplotlib'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"  # noqa: E501
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_without_a_command_the_help_is_shown() -> None:
    result = invoke()
    assert "Usage:" in result.stdout
    assert "error:" not in result.stderr


def test_the_version_is_the_packages() -> None:
    assert invoke("--version").stdout == f"localspec {package.__version__}\n"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["generate", "--no-such-option", "x"], 2, "--no-such-option"),
        (["generate", "--top-k", "many", "x"], 2, "--top-k"),
        (["generate", "--temp", "-1", "x"], 2, "temperature"),
        (["generate", "--max-tokens", "0", "x"], 2, "max-tokens"),
        (["generate", "--stop", "", "x"], 2, "stop string"),
        (["generate", "--logit-bias", "5:1", "x"], 2, "ID=BIAS"),
        (["generate", "--logit-bias", "5=nan", "x"], 2, "ID=BIAS"),
        (["generate", "--grammar", "no-such-file", "x"], 2, "no-such-file"),
        (["generate", "--raw", "--system", "a", "x"], 2, "--raw"),
        (["generate", "-m", "no/such/model.gguf", "x"], 3, "no/such/model.gguf"),
        (["generate", ""], 2, "prompt is empty"),
        (["generate"], 2, "prompt is empty"),
        (["bench", "--prompts", "no-such-file"], 2, "no-such-file"),
        (["bench", "--task", "poem"], 2, "poem"),
        (["bench", "--methods", "psychic"], 2, "psychic"),
        (["bench", "--plot", "x.gif"], 2, "x.gif"),
        (["verify", "--limit", "0"], 2, "limit"),
        (["calibrate", "a", "-m", "b"], 2, "twice"),
        (["pull", "no-such-model"], 2, "no-such-model"),
        (["generate", "--log-file", "/no/such/folder/log", "x"], 2, "/no/such/folder/log"),
        (["dance"], 2, "dance"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(args: list[str], code: int, words: str) -> None:
    result = invoke(*args)
    assert result.exit_code == code
    assert words in one_error(result)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(200))
    result = localspec("generate", "-m", str(bad), "x")
    assert result.returncode == 3
    assert "bad.gguf" in one_error(result)


def test_completion_is_offered() -> None:
    shown = localspec(
        "--show-completion", "bash", env={"SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    )
    assert shown.returncode == 0
    assert "localspec" in shown.stdout


def test_a_bias_may_forbid_a_token() -> None:
    assert SamplingOptions(logit_bias=["5=-inf", "7=1.5"]).sampling().logit_bias == {5: float("-inf"), 7: 1.5}
    with pytest.raises(UsageError):
        SamplingOptions(logit_bias=["x=1"]).sampling()


def test_models_lists_known_and_local_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "someone" / "repo").mkdir(parents=True)
    (tmp_path / "someone" / "repo" / "mine.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("LOCALSPEC_MODELS", str(tmp_path))
    listed = {row["name"]: row for row in json.loads(invoke("models", "--json").stdout)["models"]}
    assert listed["someone/repo/mine.gguf"]["size"] == 4
    assert listed["smollm2-135m-instruct"]["quant"] == "Q4_1"
    assert "someone/repo/mine.gguf" in invoke("models").stdout


def test_doctor_tells_the_build_and_the_machine() -> None:
    report = json.loads(localspec("doctor", "--json").stdout)
    assert report["library"]["version"]
    assert report["library"]["patched"] == (report["library"]["abi"] is not None)
    assert report["machine"]["cpu"]
    assert report["problems"] == []
    text = localspec("doctor").stdout
    assert report["library"]["build"] in text


# --- with the model ---


@pytest.mark.model
def test_json_output_is_complete(model: list[str]) -> None:
    done = localspec("generate", *model, "--json", "-n", "8", "--temp", "0", "Say hello.")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["text"]
    assert answer["finish_reason"] in ("stop", "length")
    usage = answer["usage"]
    assert 1 <= usage["completion_tokens"] <= 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert answer["timings"]["tokens_per_second"] > 0
    assert answer["speculation"]["steps"] <= usage["completion_tokens"]
    assert answer["seed"] >= 0


@pytest.mark.model
def test_the_seed_that_is_told_gives_the_text_again(model: list[str]) -> None:
    common = ["generate", *model, "--json", "-n", "12", "--temp", "1.5", "Tell a story."]
    first = json.loads(localspec(*common).stdout)
    again = json.loads(localspec(*common, "--seed", str(first["seed"])).stdout)
    assert again["text"] == first["text"]


@pytest.mark.model
def test_answers_go_to_stdout_and_all_else_to_stderr(model: list[str]) -> None:
    args = ("generate", *model, "-n", "6", "--temp", "0", "Say hello.")
    done, as_json = localspec(*args), json.loads(localspec(*args, "--json").stdout)
    assert done.stdout.removesuffix("\n") == as_json["text"]
    assert re.fullmatch(r"[\d.]+ tok/s · 6 tokens .*\n", done.stderr)


@pytest.mark.model
def test_the_prompt_can_come_from_a_pipe(model: list[str]) -> None:
    common = ["generate", *model, "--json", "-n", "4", "--temp", "0"]
    given = json.loads(localspec(*common, "Say hello.").stdout)
    for args in (["-"], []):
        assert json.loads(localspec(*common, *args, stdin="Say hello.").stdout)["text"] == given["text"]


@pytest.mark.model
def test_native_logs_go_to_the_log_file_and_not_to_the_terminal(model: list[str], tmp_path: Path) -> None:
    log = tmp_path / "all.log"
    done = localspec("generate", *model, "-n", "2", "-v", "--log-file", str(log), "Hi")
    assert done.returncode == 0
    assert not NATIVE.search(done.stdout + done.stderr)
    assert NATIVE.search(log.read_text(encoding="utf-8"))


@pytest.mark.model
@pytest.mark.parametrize("no_color", [True, False])
def test_no_escape_codes_without_a_terminal_or_with_no_color(model: list[str], no_color: bool) -> None:
    args = [sys.executable, "-c", "from localspec.cli import main; main()", "generate", *model, "-n", "2", "Hi"]
    if not no_color:
        done = subprocess.run(args, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert ESCAPE not in done.stdout + done.stderr
        return
    pty = pytest.importorskip("pty")
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color"}
    main, other = pty.openpty()
    process = subprocess.Popen(args, stdin=other, stdout=other, stderr=other, env=environment, close_fds=True)
    os.close(other)
    shown = _read_all(main)
    assert process.wait() == 0
    # a progress bar moves the cursor and hides it, but nothing is coloured or made bold
    assert b"tok/s" in shown
    assert not re.search(rb"\x1b\[[\d;]*m", shown)


def _read_all(descriptor: int) -> bytes:
    shown = b""
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:  # Linux reports the end of a terminal so
            part = b""
        if not part:
            os.close(descriptor)
            return shown
        shown += part


@pytest.mark.model
@pytest.mark.parametrize(
    ("option", "content", "words"),
    [
        ("--grammar", "root ::= (", "grammar"),
        ("--json-schema", "{", "JSON"),
        ("--json-schema", '{"type": 5}', "schema"),
    ],
)
def test_a_bad_grammar_or_schema_never_generates_freely(
    model: list[str], tmp_path: Path, option: str, content: str, words: str
) -> None:
    file = tmp_path / "constraint"
    file.write_text(content)
    done = localspec("generate", *model, option, str(file), "-n", "4", "Hi")
    assert done.returncode == 2
    assert words.lower() in one_error(done).lower()


@pytest.mark.model
def test_a_grammar_holds(model: list[str], tmp_path: Path) -> None:
    grammar = tmp_path / "yesno.gbnf"
    grammar.write_text('root ::= "yes" | "no"')
    done = localspec("generate", *model, "--grammar", str(grammar), "--json", "Is water wet?")
    assert json.loads(done.stdout)["text"] in ("yes", "no")


@pytest.mark.model
def test_a_stop_string_ends_the_answer_before_itself(model: list[str]) -> None:
    args = ["generate", *model, "--json", "--raw", "-n", "60", "--temp", "0", "1, 2, 3, 4,"]
    free = json.loads(localspec(*args).stdout)["text"]
    stop = free[len(free) // 2 :][:3]
    stopped = json.loads(localspec(*args, "--stop", stop).stdout)
    assert stopped["text"] == free[: free.index(stop)]
    assert (stopped["finish_reason"], stopped["stop"]) == ("stop", stop)


@pytest.mark.model
def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(model: list[str]) -> None:
    done = localspec("generate", *model, "-", stdin="word " * 2000)
    assert done.returncode == 5
    assert re.search(r"20\d\d tokens.* 512", one_error(done))


@pytest.mark.model
def test_chat_keeps_the_conversation_and_obeys_commands(model: list[str]) -> None:
    lines = [
        "Hi",
        "/method plain",
        "/method psychic",
        "/stats",
        "And again",
        "/clear",
        "Hi",
        "/nonsense",
        "/exit",
        "no",
    ]
    done = localspec("chat", *model, "-n", "4", "--temp", "0", stdin="\n".join(lines) + "\n")
    assert done.returncode == 0
    answers = done.stdout.splitlines()
    assert len(answers) == 3
    assert answers[0] == answers[2]
    contexts = [int(number) for number in re.findall(r"ctx (\d+)/512", done.stderr)]
    assert contexts[0] == contexts[2] < contexts[1]
    for words in ("the method is plain", "no method 'psychic'", "1 answers", "is forgotten", "no command /nonsense"):
        assert words in done.stderr


@pytest.mark.model
def test_chat_goes_on_after_a_message_that_does_not_fit(model: list[str]) -> None:
    done = localspec("chat", *model, "-n", "2", "--temp", "0", stdin="word " * 2000 + "\nHi\n")
    assert done.returncode == 0
    assert "/clear" in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_stops_the_answer_and_not_the_chat(model: list[str]) -> None:
    process = _start("chat", *model, "--logit-bias", "2=-inf", "--logit-bias", "0=-inf")
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write("Write a very long story.\n")
    process.stdin.flush()
    process.stdout.read(1)  # the answer has begun
    process.send_signal(signal.SIGINT)
    assert "stopped" in process.stderr.readline()
    _, rest = process.communicate("/help\n", timeout=60)
    assert process.returncode == 0
    assert "/clear" in rest


@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_generate_with_130_and_keeps_what_was_written(model: list[str]) -> None:
    process = _start("generate", *model, "--logit-bias", "2=-inf", "--logit-bias", "0=-inf", "Write a long story.")
    assert process.stdout
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert first
    assert "Traceback" not in errors


@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_at_the_prompt_leaves_the_chat_with_130(model: list[str]) -> None:
    process = _start("chat", *model, "-n", "1")
    assert process.stdin and process.stderr
    process.stdin.write("Hi\n")
    process.stdin.flush()
    process.stderr.readline()  # the status line: the chat waits for the next message
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_a_reader_that_goes_away_ends_generate_quietly(model: list[str]) -> None:
    process = _start("generate", *model, "--logit-bias", "2=-inf", "--logit-bias", "0=-inf", "Write a long story.")
    assert process.stdout and process.stderr
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(timeout=60) == 1
    assert errors == ""


def _start(*args: str) -> subprocess.Popen[str]:
    code = "from localspec.cli import main; main()"
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, *args], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.model
def test_calibrate_shows_the_stored_curve(model: list[str]) -> None:
    shown = json.loads(localspec("calibrate", *model, "--json").stdout)
    assert shown["curve"]["n"] == [1, 64]
    assert Path(shown["file"]).is_file()
    report = json.loads(localspec("doctor", "--json").stdout)
    assert [curve["curve"]["n"] for curve in report["curves"]] == [[1, 64]]
