"""Pictures of token trees."""

from __future__ import annotations

import random
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from localspec.tui.render import styles
from localspec.tui.render.glyphs import visible
from localspec.tui.render.tree import tree
from localspec.tui.snapshot import Step

#: " The" -> (" quick" -> (" brown" -> " fox"), " dog"), (" lazy" -> " cat"), " old"
FOREST = Step(
    number=1,
    method="ptd",
    parents=(-1, 0, 0, 0, 1, 1, 2, 4),
    texts=(" The", " quick", " lazy", " old", " brown", " dog", " cat", " fox"),
    path=(1, 4),
    bonus=" bear",
    seconds=0.1,
)


def chain(n: int, n_taken: int, bonus: str | None = "!") -> Step:
    return Step(
        1,
        "lookup",
        tuple(range(-1, n)),
        tuple([f" w{i}" for i in range(n + 1)]),
        tuple(range(1, n_taken + 1)),
        bonus,
        0.1,
    )


def lines(step: Step, width: int = 34, rows: int = 12, ascii_only: bool = False) -> list[str]:
    return tree(step, width, rows, ascii_only=ascii_only).plain.split("\n")


def styled(text: Text, part: str) -> set[str]:
    """The styles of a part of a text."""
    at = text.plain.index(part)
    return {str(span.style) for span in text.spans if span.start < at + len(part) and span.end > at}


def test_a_tree_has_its_forks_and_marks() -> None:
    assert lines(FOREST) == [
        "●␣The",
        "├✓␣quick",
        "│ ├✓␣brown",
        "│ │ ├·␣fox",
        "│ │ └+␣bear",
        "│ └·␣dog",
        "├·␣lazy ·␣cat",
        "└·␣old",
    ]


def test_without_utf8_it_is_made_of_ascii() -> None:
    assert lines(FOREST, ascii_only=True) == [
        "o_The",
        "|-*_quick",
        "| |-*_brown",
        "| | |-._fox",
        "| | `-+_bear",
        "| `-._dog",
        "|-._lazy ._cat",
        "`-._old",
    ]


def test_kinds_of_tokens_have_styles_of_their_own() -> None:
    picture = tree(FOREST, 34, 12)
    assert styles.ACCEPTED in styled(picture, "brown")
    assert styled(picture, "dog") == {styles.REFUSED}
    assert styled(picture, "bear") == {styles.BONUS}
    assert styles.BONUS not in styled(picture, "fox")


def test_a_step_without_a_draft_is_one_line() -> None:
    assert lines(Step(1, "plain", (-1,), (" the",), (), " end", 0.1)) == ["●␣the +␣end"]


def test_nodes_without_a_fork_share_a_line() -> None:
    assert lines(chain(3, 3)) == ["●␣w0 ✓␣w1 ✓␣w2 ✓␣w3 +!"]
    assert lines(chain(5, 2)) == ["●␣w0 ✓␣w1 ✓␣w2", "├·␣w3 ·␣w4 ·␣w5", "└+!"]


def test_a_path_that_ends_the_answer_has_no_bonus() -> None:
    assert lines(chain(3, 2, bonus=None)) == ["●␣w0 ✓␣w1 ✓␣w2", "└·␣w3"]


def test_forgiven_tokens_have_a_mark_of_their_own() -> None:
    step = Step(1, "ptd", (-1, 0, 1), ("a", "b", "c"), (1, 2), "d", 0.1, forgiven=(2,))
    assert lines(step) == ["●a ✓b ≈c +d"]
    assert styled(tree(step, 34, 9), "≈c") == {styles.FORGIVEN}


def test_a_long_path_goes_on_below_and_a_long_draft_is_cut() -> None:
    assert lines(chain(8, 7), width=18) == ["●␣w0 ✓␣w1 ✓␣w2", "│ ✓␣w3 ✓␣w4 ✓␣w5", "│ ✓␣w6 ✓␣w7", "├·␣w8", "└+!"]
    assert lines(chain(8, 0), width=18) == ["●␣w0", "├·␣w1 ·␣w2 ·␣w3 …5", "└+!"]


def test_the_path_has_a_place_before_all_others() -> None:
    """Most nodes have no room: the last line counts them."""
    assert lines(FOREST, rows=6) == [
        "●␣The",
        "├✓␣quick",
        "│ └✓␣brown",
        "│   └+␣bear",
        "└·␣lazy ·␣cat",
        "… 3 more nodes",
    ]
    assert lines(FOREST, rows=5) == ["●␣The", "└✓␣quick", "  └✓␣brown", "    └+␣bear", "… 5 more nodes"]


def test_of_a_path_that_is_itself_too_long_the_end_is_shown() -> None:
    assert lines(chain(30, 30), width=18, rows=3) == ["… 28 more nodes", "  ✓␣w28 ✓␣w29", "  ✓␣w30 +!"]


def test_wide_characters_are_measured() -> None:
    step = Step(1, "ptd", (-1, 0, 0), ("日本", "語" * 30, "🙂"), (2,), "é", 0.1)
    assert lines(step, width=20) == ["●日本", "├·語語語語語語語語…", "└✓🙂 +é"]


def test_texts_cannot_command_the_terminal() -> None:
    assert visible(" a\nb\tc\r") == "␣a↵b⇥c␍"
    assert visible("\x1b[31m\x9b") == r"\x1b[31m\x9b"
    assert visible("‮abc​") == r"\u202eabc\u200b", "neither do they change the direction of what follows"
    assert visible("") == "∅"
    assert visible("\n       x   y") == "↵␣×7x␣␣␣y", "indentation is counted"
    assert visible("\n       x", ascii_only=True) == r"\n_x7x"
    assert visible("́x") == "◌́x", "a mark that combines has something to stand on"
    assert visible("❤️") == "❤"
    assert visible(" é\n", ascii_only=True) == r"_\xe9\n"
    assert visible("\udc80") == r"\udc80"


TEXT = st.text(max_size=12) | st.sampled_from([" the", "\n", "日本語", "👩‍💻", "\x1b[2J"])


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Any tree, of which any path was taken."""
    n = draw(st.integers(1, 40))
    parents = (-1, *(draw(st.integers(0, i - 1)) for i in range(1, n)))
    texts = tuple(draw(TEXT) for _ in range(n))
    choose, path = random.Random(draw(st.integers(0, 99))), [0]
    while (below := [i for i in range(n) if parents[i] == path[-1]]) and choose.random() < 0.8:
        path.append(choose.choice(below))
    bonus = draw(st.none() | TEXT) if len(path) > 1 else draw(TEXT)
    return Step(1, "ptd", parents, texts, tuple(path[1:]), bonus, 0.1, forgiven=tuple(path[1:2]))


@given(step=steps(), width=st.integers(12, 50), rows=st.integers(2, 20), ascii_only=st.booleans())
def test_any_tree_fits(step: Step, width: int, rows: int, ascii_only: bool) -> None:
    drawn = lines(step, width, rows, ascii_only)
    assert len(drawn) <= rows
    assert max(map(cell_len, drawn)) <= width
    assert not [char for line in drawn for char in line if unicodedata.category(char)[0] == "C"]
    if ascii_only:
        assert "".join(drawn).isascii()
