"""Answers cut into blocks: nothing is lost, what is finished stays, and nothing grows without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.tui.blocks import CODE_LINES, TEXT_CHARS, Block, Blocks, blocks_of, code_of

LINES = st.sampled_from(
    [
        "",
        "some words",
        "- item",
        "  goes on",
        "12. item",
        "```",
        "```python",
        "~~~~",
        "    x = 1",
        "| a | b |",
        "|---|---|",
    ]
)
TEXTS = st.one_of(st.text(max_size=200), st.lists(LINES, max_size=30).map("\n".join))


@given(TEXTS, st.lists(st.integers(1, 9), max_size=60))
def test_pieces_make_no_difference(text: str, sizes: list[int]) -> None:
    blocks, at = Blocks(), 0
    for size in sizes:
        blocks.feed(text[at : at + size])
        at += size
    blocks.feed(text[at:])
    assert blocks.blocks == blocks_of(text)


@given(TEXTS, st.integers(1, 9))
def test_only_what_is_told_changes(text: str, size: int) -> None:
    blocks = Blocks()
    for at in range(0, len(text), size):
        before = list(blocks.blocks)
        first = blocks.feed(text[at : at + size])
        assert first >= len(before) - 2
        assert blocks.blocks[:first] == before[:first]


@given(st.lists(st.sampled_from(["word", "other words", "- item"]), min_size=1, max_size=40))
def test_no_word_is_lost(lines: list[str]) -> None:
    text = "\n\n".join(lines)
    assert " ".join(block.source for block in blocks_of(text)).split() == text.split()


def test_code_stands_alone() -> None:
    text = "Like this:\n\n1. first\n\n   ```python\n   def f():\n       return 1\n   ```\n2. second"
    assert blocks_of(text) == [
        Block("text", "Like this:\n"),
        Block("text", "1. first\n"),
        Block("code", "def f():\n    return 1", "python", indent=3),
        Block("text", "2. second"),
    ]


def test_a_fence_inside_a_longer_fence_is_code() -> None:
    assert blocks_of("````\n```\nx\n```\n````") == [Block("code", "```\nx\n```")]


def test_code_is_there_before_its_fence_ends() -> None:
    blocks = Blocks()
    blocks.feed("```sh\nls\n``")
    assert blocks.blocks == [Block("code", "ls", "sh")]


def test_long_code_is_cut_and_copied_whole() -> None:
    code = "\n".join(f"line {i}" for i in range(3 * CODE_LINES))
    blocks = blocks_of(f"```\n{code}\n```\nand\n```\nmore\n```")
    assert max(block.source.count("\n") for block in blocks) < CODE_LINES
    assert [block.joined for block in blocks] == [False, True, True, False, False]
    assert code_of(f"```\n{code}\n```\nand\n```\nmore\n```") == [code, "more"]


def test_a_line_without_end_is_cut_at_a_space() -> None:
    text = "word " * 4000
    blocks = blocks_of(text)
    assert max(len(block.source) for block in blocks) <= 2 * TEXT_CHARS
    assert "".join(block.source for block in blocks).split() == text.split()
    assert not any(block.source.startswith("ord") for block in blocks)


def test_a_table_that_is_cut_keeps_its_head() -> None:
    rows = "".join(f"| {i} | something |\n" for i in range(500))
    blocks = blocks_of("| n | what |\n|---|---|\n" + rows)
    assert len(blocks) > 2
    assert {block.header for block in blocks[1:]} == {"| n | what |\n|---|---|"}


def test_a_list_goes_on_over_blank_lines_where_it_is_indented() -> None:
    assert len(blocks_of("- one\n\n  more of one\n\nnot the list")) == 2
