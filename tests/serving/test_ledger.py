"""Tokens are told with their text: none early, none twice, none of a stop string."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from localspec.serving.ledger import Ledger
from localspec.text import TextStream

TEXTS = st.text("ab cé한👍🏽\n\u200d", max_size=30)


@given(
    text=TEXTS, cuts=st.sets(st.integers(1, 60)), stops=st.lists(st.text("abc 한", min_size=1, max_size=3), max_size=2)
)
def test_tokens_that_are_told_make_the_text_that_is_told(text: str, cuts: set[int], stops: list[str]) -> None:
    data = text.encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
    stream, ledger = TextStream(lambda i: pieces[i], stops), Ledger(lambda i: pieces[i])
    told: list[int] = []
    written = ""
    for token in range(len(pieces)):
        if stream.stopped is not None:
            break
        part = stream.push(token)
        ledger.add(token)
        written += part
        told += ledger.tell(part)[0]
        # all of a token's characters have left, and the next token's have not
        so_far = b"".join(pieces[i] for i in told)
        assert len(so_far.decode("utf-8", "ignore")) <= len(written)
    rest = stream.flush()
    written += rest
    told += ledger.tell(rest, last=True)[0]
    assert told == list(range(len(told)))
    if stream.stopped is None:
        assert b"".join(pieces[i] for i in told) == data and written == text
    else:
        whole = b"".join(pieces[i] for i in told).decode("utf-8", "ignore")
        assert written.startswith(whole) and stream.stopped not in written


def test_a_character_that_never_ends_is_told_at_the_end() -> None:
    ledger = Ledger(lambda i: [b"a", b"\xf0\x9f"][i])
    ledger.add(0)
    assert ledger.tell("a")[0] == (0,)
    ledger.add(1)
    assert ledger.tell("")[0] == ()
    assert ledger.tell("\ufffd", last=True)[0] == (1,)
