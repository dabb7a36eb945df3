"""The command line as people and scripts meet it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import localspec as package
from localspec.cli import app
from localspec.cli.answer import Answer, open_session
from localspec.cli.chat_plain import command_of
from localspec.cli.console import Interrupts, status_line
from localspec.cli.options import EngineOptions, SamplingOptions
from localspec.errors import EngineError, UsageError
from localspec.events import DoneEvent, Stats
from tests.with_model import calibrated_home, localspec, smollm

ROOT = Path(package.__file__).parents[1]
PROGRAM = [sys.executable, "-c", "from localspec.cli import main; main()"]
COMMANDS = (
    "chat", "generate", "bench", "eval", "verify", "record", "replay", "calibrate", "train-heads", "convert-heads",
    "doctor", "models", "pull", "drafts", "top", "serve",
)  # fmt: skip
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
        (["generate", "--temp", "-1", "x"], 2, "--temp is -1"),
        (["generate", "--temp", "1e39", "x"], 2, "--temp"),
        (["generate", "--temp", "nan", "x"], 2, "--temp"),
        (["generate", "--top-k", "9999999999999", "x"], 2, "--top-k"),
        (["generate", "--presence-penalty", "1e39", "x"], 2, "--presence-penalty"),
        (["generate", "--logit-bias", "5=1e39", "x"], 2, "--logit-bias"),
        (["generate", "--seed", "-9", "x"], 2, "--seed"),
        (["generate", "-t", "99999999999", "x"], 2, "--threads"),
        (["generate", "-c", "99999999999", "x"], 2, "--ctx-size"),
        (["chat", "--gpu-layers", "99999999999"], 2, "--gpu-layers"),
        (["bench", "--gpu-layers", "-7", "--limit", "1"], 2, "--gpu-layers"),
        (["verify", "--temp", "1e39"], 2, "--temp"),
        (["generate", "--bank", "code", "x"], 2, "auto takes no bank of trees"),
        (["chat", "--bank", "auto", "--method", "heads"], 2, "heads takes no bank of trees"),
        (["verify", "--method", "plain"], 2, "--method plain"),
        (["generate", "--draft-sampling", "--temp", "0.5", "x"], 2, "--draft-sampling needs --temp 0.7 or more"),
        (["bench", "--draft-sampling"], 2, "--draft-sampling needs --temp 0.7 or more, not 0"),
        (["chat", "--draft-sampling", "--method", "plain"], 2, "--method plain drafts nothing"),
        (["generate", "--accept", "lose", "x"], 2, "no --accept 'lose'"),
        (["generate", "--theta", "0.5", "x"], 2, "--theta 0.5 goes with --accept loose, not with --accept strict"),
        (["chat", "--window", "3", "--accept", "typical"], 2, "--window 3 goes with --accept loose"),
        (["bench", "--entropy", "top3"], 2, "--entropy top3 goes with --accept loose"),
        (["generate", "--ratio", "0.5", "x"], 2, "--ratio 0.5 goes with --accept loose, not with --accept strict"),
        (["eval", "--suite", "copy", "--accept", "loose", "--ratio", "2"], 2, "--ratio 2 is no share"),
        (["generate", "--literals", "exact", "x"], 2, "--literals exact goes with --accept loose, not with --accept"),
        (["eval", "--suite", "copy", "--accept", "loose", "--literals", "all"], 2, "there is no --literals 'all'"),
        (["generate", "--accept", "loose", "--theta", "-1", "x"], 2, "--theta -1"),
        (["generate", "--accept", "loose", "--theta", "nan", "x"], 2, "--theta nan"),
        (["generate", "--accept", "loose", "--theta", "inf", "x"], 2, "--theta inf forgives nothing"),
        (["eval", "--suite", "copy", "--nodes", "4", "--method", "plain"], 2, "--nodes would do nothing"),
        (["eval", "--suite", "copy", "--accept", "loose", "--method", "plain"], 2, "--accept loose would do nothing"),
        (["generate", "--accept", "loose", "--window", "0", "x"], 2, "--window 0"),
        (["generate", "--accept", "loose", "--entropy", "top5", "x"], 2, "no --entropy 'top5'"),
        (["generate", "--accept", "loose", "--draft-sampling", "x"], 2, "exclude each other"),
        (["generate", "--accept", "typical", "--draft-sampling", "x"], 2, "exclude each other"),
        (["generate", "--accept", "typical", "--repeat-penalty", "1.2", "x"], 2, "no penalty"),
        (["generate", "-m", "", "x"], 2, "name of the model is empty"),
        (["generate", "a\udcff"], 2, "UTF-8"),
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
        (["bench", "--curve", "--limit", "3", "-t", "1"], 2, "--limit would do nothing"),
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


def test_a_context_too_large_for_the_memory_is_told_as_the_option() -> None:
    smollm()
    done = localspec("generate", "-c", "2000000000", "--method", "plain", "x")
    assert done.returncode == 4
    assert "--ctx-size 2000000000" in one_error(done)
    assert "--ctx-size" in done.stderr.splitlines()[1]


def test_a_name_unlike_any_other_gets_a_whole_sentence_as_hint() -> None:
    assert invoke("pull", "zzzzzz").stderr.splitlines()[1].startswith("hint: `localspec models`")


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_input_that_is_not_utf8_is_refused(command: str, model: list[str]) -> None:
    done = subprocess.run([*PROGRAM, command, *model], input=b"caf\xe9\n", capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


# --- the installation and the streams ---


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["chat"], 4),
        (["generate", "x"], 4),
        (["bench", "--plot", "x.svg"], 4),
        (["verify"], 4),
        (["calibrate"], 4),
        (["doctor"], 1),
        (["models"], 0),
        (["pull", "smollm2-135m-instruct"], 0),
    ],
)
@pytest.mark.parametrize("failure", ["OSError('libllama.so: wrong ELF class')", "AttributeError('wrong ELF class')"])
def test_a_library_that_cannot_be_loaded_is_one_line(tmp_path: Path, args: list[str], code: int, failure: str) -> None:
    smollm()
    stub = tmp_path / "llama_cpp"
    stub.mkdir()
    (stub / "__init__.py").write_text(f"raise {failure}")
    done = localspec(*args, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if code == 4:
        assert "wrong ELF class" in one_error(done)
        assert "ggml_patches" in done.stderr
    elif args == ["doctor"]:
        assert "wrong ELF class" in done.stdout
    else:
        assert done.stderr == ""


def test_a_library_built_for_another_cpu_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec import machine, session
    from localspec.cli.doctor import examine

    smollm()
    used = frozenset(machine.library().features) & set(machine.FEATURES)
    if not used:
        pytest.skip("this library uses no special features")
    lacking = sorted(used)[0]
    monkeypatch.setattr(machine, "cpu_features", lambda: frozenset(machine.FEATURES) - {lacking})
    monkeypatch.setattr(session.Model, "load", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(EngineError, match=rf"uses {lacking}, which this CPU lacks"):
        session.Session.open()
    assert any(lacking in problem for problem in examine()["problems"])
    monkeypatch.setattr(machine, "cpu_features", lambda: None)
    assert machine.lacking_features() == [], "a system that does not tell"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["models", "--json"], ["doctor"]])
def test_a_full_stdout_is_one_line(args: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: stdout cannot be written: No space left on device\n")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_closed_streams_are_no_crash() -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = " ".join(map(shlex.quote, PROGRAM))
        return subprocess.run(["sh", "-c", f"{command} {' '.join(args)}"], capture_output=True, text=True)

    done = run("models", ">&-")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "error: stdout is closed")
    done = run("models", "--json", "2>&-", "<&-")
    assert (done.returncode, json.loads(done.stdout)["folder"] != "") == (0, True)
    done = run("generate", "''", "2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    done = run("generate", "<&-")
    assert "prompt is empty" in done.stderr


@pytest.mark.model
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_one_line(model: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "generate", *model, "-n", "2", "Hi"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: stdout cannot be written")
    assert "Traceback" not in done.stderr


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
    assert report["folders"]["settings"] in text


def test_doctor_names_settings_of_the_chat_that_cannot_be_used(tmp_path: Path) -> None:
    settings = tmp_path / "config" / "chat.toml"
    settings.parent.mkdir()
    settings.write_text('panel = "wide"\n', encoding="utf-8")
    done = localspec("doctor", env={"LOCALSPEC_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "'wide' is none of off, line, panel" in " ".join(done.stdout.split())


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
    assert answer["gguf_name"] not in (None, answer["model"])
    assert re.fullmatch(r"smollm2[a-z0-9._-]+", answer["model"])


@pytest.mark.parametrize(
    ("asked", "drafted", "notes", "mode", "reason"),
    [
        ("lookup", 5, [], "on", None),
        ("auto", 5, ["spec off: not faster here", "spec on again"], "on", None),
        ("auto", 5, ["spec off: not faster here"], "off", "not faster here"),
        ("auto", 0, ["spec off: this model's memory is recurrent"], "off", "this model's memory is recurrent"),
        ("lookup", 0, [], "off", "no draft was worth verifying"),
        ("plain", 0, [], "off", "plain decoding was asked for"),
    ],
)
def test_the_json_tells_whether_it_speculated_and_why_not(
    asked: str, drafted: int, notes: list[str], mode: str, reason: str | None
) -> None:
    answer = Answer(DoneEvent("stop", "", Stats(n_drafted=drafted)), "lookup", "", notes)
    told = answer.to_dict(asked)["speculation"]
    assert (told["mode"], told["reason"]) == (mode, reason)


@pytest.mark.model
def test_speculation_is_told_as_it_happened(model: list[str]) -> None:
    args = ("generate", *model, "--json", "--raw", "-n", "24", "--temp", "0", "a b c d a b c d a b c d a b c d a b")
    on, off = (json.loads(localspec(*args, "--method", name).stdout)["speculation"] for name in ("lookup", "plain"))
    assert on["drafted"] > 0 and on["mode"] == "on" and on["lossless"]
    assert off["drafted"] == 0 and off["mode"] == "off" and off["reason"]


@pytest.mark.model
def test_a_lossy_answer_says_so(model: list[str]) -> None:
    args = ("generate", *model, "--accept", "typical", "--method", "lookup", "-n", "8", "Say hello.")
    assert json.loads(localspec(*args, "--json").stdout)["speculation"]["lossless"] is False
    assert "lookup, lossy" in localspec(*args).stderr


@pytest.mark.model
def test_loose_acceptance_tells_what_was_loosened(model: list[str]) -> None:
    words = " ".join(f"a{i} b{i}" for i in range(30))
    args = ("generate", *model, "--accept", "loose", "--theta", "0", "--window", "2", "--method", "lookup", "--raw")
    args = (*args, "--ratio", "0.01", "--literals", "loose", "--temp", "1.5", "--seed", "1", "-n", "48")
    args = (*args, f"{words} {words}")
    answer = json.loads(localspec(*args, "--json").stdout)
    told = answer["speculation"]
    assert (told["accept"], told["theta"], told["window"], told["entropy"]) == ("loose", 0.0, 2, "top3")
    assert (told["ratio"], told["literals"]) == (0.01, "loose")
    assert not told["lossless"]
    assert told["forgiven"] == len(told["forgiven_at"]) == len(told["forgiven_ids"])
    assert told["forgiven_at"] == sorted(at for at in set(told["forgiven_at"]) if 0 <= at < 48)
    line = f"loose: {told['forgiven']} of {answer['usage']['completion_tokens']} tokens forgiven"
    assert line in localspec(*args).stderr


def test_the_line_below_a_lossy_answer_counts_what_was_forgiven() -> None:
    stats = Stats(n_tokens=120, n_steps=30, n_drafted=400, forgiven=[3, 17, 90])
    assert "ptd, lossy · loose: 3 of 120 tokens forgiven" in status_line(
        DoneEvent("stop", "", stats, lossless=False, accept="loose"), "ptd"
    )
    assert "forgiven" not in status_line(DoneEvent("stop", "", Stats(n_tokens=120)), "ptd")


@pytest.mark.model
def test_draft_sampling_without_heads_is_refused(model: list[str]) -> None:
    done = localspec("generate", *model, "--draft-sampling", "--method", "lookup", "Say hello.")
    assert done.returncode == 2 and "'lookup' does not" in one_error(done)


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


def _leave(process: subprocess.Popen[str], terminal: int) -> None:
    """Press ctrl-d until the program ends: one that comes before the prompt is lost when the terminal changes mode."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            os.write(terminal, b"\x04")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
            break
    process.kill()
    os.close(terminal)


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
def test_the_second_ctrl_c_at_the_prompt_leaves_the_chat_with_130(model: list[str]) -> None:
    process = _start("chat", *model, "-n", "1")
    assert process.stdin and process.stdout and process.stderr

    def press() -> None:
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert "ctrl-c again" in process.stderr.readline()  # type: ignore[union-attr]

    for _ in range(2):  # a message between them: these two are not in a row
        process.stdin.write("Hi\n")
        process.stdin.flush()
        process.stderr.readline()  # the status line: the chat waits for the next message
        press()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_a_flag_unless_something_is_typed() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.pressed()
        interrupts.reset()
        assert not interrupts.pressed()
        with pytest.raises(KeyboardInterrupt), interrupts.typing():
            signal.raise_signal(signal.SIGINT)
        interrupts.reset()
        with pytest.raises(KeyboardInterrupt):  # somebody insists
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_in_a_callback_of_the_library_is_not_lost(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    done: list[str] = []

    class Opened:
        @staticmethod
        def open(*_: Any, progress: Callable[[str, float], None], **__: Any) -> Opened:
            with contextlib.suppress(KeyboardInterrupt):  # as ctypes does
                signal.raise_signal(signal.SIGINT)
            if not late:
                progress("loading the model", 0.5)
            done.append("opened")
            return Opened()

        def close(self) -> None:
            done.append("closed")

    monkeypatch.setattr("localspec.session.Session", Opened)
    with pytest.raises(KeyboardInterrupt), open_session(EngineOptions(), "plain"):
        done.append("used")
    assert done == (["opened", "closed"] if late else [])


@pytest.mark.model
def test_a_turn_stopped_before_its_first_token_is_forgotten(
    model: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from localspec.cli.chat_plain import _Chat
    from localspec.cli.options import LimitOptions
    from localspec.engine.params import ContextParams, SamplingParams
    from localspec.session import Session

    messages = iter(["one", "two", None])
    with Session.open(model[1], method="plain", context=ContextParams(n_ctx=256, n_threads=1)) as session:
        chat = _Chat(session, SamplingParams(temperature=0), LimitOptions(max_tokens=2), "plain", None)
        monkeypatch.setattr(chat, "_read", lambda: next(messages))
        presses = iter([1, 0])  # during the first turn, as soon as it begins
        monkeypatch.setattr(Interrupts, "reset", lambda self: setattr(self, "_presses", next(presses)))
        chat.loop()
    assert [message["content"] for message in chat.messages if message["role"] == "user"] == ["two"]
    assert "forgotten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("/help", ("/help", "")),
        (" /exit ", ("/exit", "")),
        ("/nonsense", ("/nonsense", "")),
        ("/system", ("/system", "")),
        ("/system Be brief.\nAnd kind.", ("/system", "Be brief.\nAnd kind.")),
        ("/method plain", ("/method", "plain")),
        ("/etc/hosts what is this", None),
        ("/clear the table, please", None),
        ("/help\nme", None),
        ("what is /help", None),
        ("", None),
    ],
)
def test_a_message_may_begin_with_a_slash(message: str, command: tuple[str, str] | None) -> None:
    assert command_of(message) == command


@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="a terminal of POSIX")
def test_pasted_lines_are_one_message(model: list[str]) -> None:
    pty = pytest.importorskip("pty")
    main, other = pty.openpty()
    args = [*PROGRAM, "chat", *model, "-n", "1", "--temp", "0"]
    environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1"}  # a dumb terminal brackets no paste
    process = subprocess.Popen(args, stdin=other, stdout=other, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(other)
    assert process.stderr
    assert "/help lists" in process.stderr.readline()
    os.write(main, b"first line\nsecond line\nthird line\n")
    assert "ctx" in process.stderr.readline()
    os.write(main, b"/stats\n")
    assert "1 answers" in process.stderr.readline()
    _leave(process, main)
    assert process.returncode == 0


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
    assert shown["status"] == "found"
    assert Path(shown["file"]).is_file()
    report = json.loads(localspec("doctor", "--json").stdout)
    assert [curve["curve"]["n"] for curve in report["curves"]] == [[1, 64]]
