"""Which tokens are literal: a thought may be worded otherwise, but a number, a sign of code or an indentation may not.

A token is judged by its own text and by whether it goes on right behind a digit, as all that is known of a mismatch is
its two tokens and the text before them. So there is no telling a name in code from a word, nor "three" from "four".
"""

from __future__ import annotations

import re
import unicodedata

#: Unicode's numbers, signs of mathematics (with + < = > | ~) and currencies
_CATEGORIES = frozenset({"Nd", "Nl", "No", "Sm", "Sc"})
#: what else tells code and calculations apart; without . , : ; ? which are far more often the marks of a sentence
_SIGNS = frozenset('!"#%&()*-/@[\\]^_`{}°‰·')
#: a single quote; before a letter of the same token it is an apostrophe, as in 's and 't
_QUOTE = re.compile(r"'(?![^\W\d_])")
#: an indentation. Newlines alone are none, as they part the paragraphs of prose
_INDENTATION = re.compile(r"\t|  |\n ")


def is_literal(piece: bytes) -> bool:
    """Whether the text of a token has something literal, wherever it stands.

    A space alone counts, as it announces a digit or an indentation; so does a part of a character, as nobody knows of
    which, and a token without text, which is no word.
    """
    try:
        text = unicodedata.normalize("NFKC", piece.decode())  # full-width signs are signs
    except UnicodeDecodeError:
        return True
    if text in ("", " ") or _INDENTATION.search(text) or _QUOTE.search(text):
        return True
    return any(char in _SIGNS or unicodedata.category(char) in _CATEGORIES for char in text)


def any_literal(before: bytes, *pieces: bytes) -> bool:
    """Whether one of these tokens, each as the one after `before`, is literal. Right behind a digit all are that do not
    begin with a space: a point, a comma or a letter may belong to the number."""
    behind_digit = before.decode("utf-8", "replace")[-1:].isdigit()
    return any(is_literal(piece) or (behind_digit and not piece[:1].isspace()) for piece in pieces)
