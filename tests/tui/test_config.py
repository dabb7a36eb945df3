"""The settings of the chat: bad entries cost themselves alone, and a file keeps what a person wrote in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.tui.config import Config

WRITTEN = """\
# how I like it
theme = "nord"   # blue
note = "not ours"
system = '''
Answer
fps = 3
'''

[sampling]   # cool
temperature = 0.2
"top_k" = 20

# keys come last
[keys]
regenerate = "ctrl+g"
copy_answer = ["ctrl+y", "f8"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "chat.toml"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_can_be_set(path: Path) -> None:
    text = (
        'theme = "nord"\npanel = "off"\ntint = true\nmarkdown = false\nmouse = false\nfps = 5\nsystem = "Be brief."\n'
        '[sampling]\ntemperature = 0\nseed = 7\nmax_tokens = 100\n[keys]\nregenerate = "ctrl+g"\ntheme = []\n'
    )
    config, problems = Config.read(write(path, text), themes=("nord", "dracula"))
    assert not problems
    assert config == Config(
        theme="nord",
        panel="off",
        tint=True,
        markdown=False,
        mouse=False,
        fps=5,
        system="Be brief.",
        sampling={"temperature": 0, "seed": 7, "max_tokens": 100},
        keys={"regenerate": ("ctrl+g",), "theme": ()},
    )


def test_without_a_file_all_is_as_by_default(path: Path) -> None:
    assert Config.read(path) == (Config(), [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('theme = "nrod"', "theme: 'nrod' is none of nord, dracula; did you mean nord?"),
        ("theme = 5", "theme: 5 is none of nord, dracula"),
        ('panel = "lines"', "panel: 'lines' is none of off, line, panel; did you mean line?"),
        ('tint = "yes"', "tint: 'yes' is neither true nor false"),
        ("fps = 0", "fps: 0 is not a whole number from 1 to 60"),
        ("fps = true", "fps: True is not a whole number from 1 to 60"),
        ("system = 1", "system: 1 is not a text"),
        ("colour = 1", "colour: there is no such setting"),
        ("pannel = 1", "pannel: there is no such setting; did you mean panel?"),
        ("sampling = 1", "sampling: 1 is not a table"),
        ("[sampling]\ntemprature = 1", "sampling.temprature: there is no such setting; did you mean temperature?"),
        ("[sampling]\ntop_p = 2", "sampling.top_p: 2; it is from 0 to 1"),
        ("[sampling]\ntop_k = 1.5", "sampling.top_k: 1.5, not a whole number"),
        ("[sampling]\nmax_tokens = 0", "sampling.max_tokens: 0 is not a whole number of 1 or more"),
        ("[keys]\nsend = 5", "keys.send: 5 is neither a key nor a list of keys"),
        ('[keys]\nregenerat = "f8"', "keys: there is no action 'regenerat'; did you mean regenerate?"),
        ('[keys]\nregenerate = "ctrl+c"', "keys: regenerate: ctrl+c copies"),
    ],
)
def test_a_bad_entry_is_told_in_one_line_and_costs_itself_alone(path: Path, text: str, told: str) -> None:
    config, problems = Config.read(write(path, f"markdown = false\n{text}\n"), themes=("nord", "dracula"))
    assert len(problems) == 1 and problems[0].startswith(f"{path}: {told}") and "\n" not in problems[0]
    assert replace(config, keys={}) == Config(markdown=False)


@pytest.mark.parametrize("content", [b"theme = \n", b"tint = true\ntint = false\n", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_not_used_and_not_overwritten(path: Path, content: bytes) -> None:
    write(path, "").write_bytes(content)
    config, problems = Config.read(path)
    assert config == Config() and len(problems) == 1 and f"{path} is not used" in problems[0]
    with pytest.raises(UsageError, match="cannot be changed"):
        replace(config, theme="nord").write(path)
    assert path.read_bytes() == content


def test_a_change_touches_its_own_lines_alone(path: Path) -> None:
    config, _ = Config.read(write(path, WRITTEN))
    changed = replace(config, theme="dracula", fps=10, system=None, sampling={"temperature": 0.5, "seed": 3})
    changed.write(path)
    assert path.read_text(encoding="utf-8") == (
        "# how I like it\n"
        'theme = "dracula"  # blue\n'
        'note = "not ours"\n'
        "fps = 10\n\n"
        "[sampling]   # cool\n"
        "temperature = 0.5\n"
        "seed = 3\n\n"
        "# keys come last\n"
        "[keys]\n"
        'regenerate = "ctrl+g"\n'
        'copy_answer = ["ctrl+y", "f8"]\n'
    )
    assert Config.read(path)[0] == changed


@pytest.mark.parametrize(
    "system", ['"quoted" \\ # no comment', "two\nlines\r\n", "\x00\x7f\x1b é \U0001f333", "'''", "# x"]
)
def test_any_text_can_be_kept(path: Path, system: str) -> None:
    made = Config(system=system, panel="line", sampling={"min_p": 1e-06})
    made.write(path)
    assert Config.read(path) == (made, [])
    replace(made, tint=True).write(path)
    assert Config.read(path)[0].system == system


def test_settings_come_before_a_table_that_is_alone(path: Path) -> None:
    write(path, "# mine\n[keys]\nquit = []")
    made = replace(Config.read(path)[0], tint=True)
    made.write(path)
    assert Config.read(path) == (made, [])
    assert "# mine\n[keys]\nquit = []\n" in path.read_text()


def test_a_form_that_cannot_be_changed_is_left_as_it_is(path: Path) -> None:
    text = "sampling = { temperature = 0.1, top_k = 3 }\n"
    config, _ = Config.read(write(path, text))
    with pytest.raises(UsageError, match="change it by hand"):
        replace(config, sampling={"temperature": 0.9, "top_k": 3}).write(path)
    assert path.read_text() == text


def test_nothing_is_written_where_nothing_changed(path: Path) -> None:
    Config().write(path)
    assert not path.exists()
