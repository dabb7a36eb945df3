"""The corpus that comes with localspec: small models' answers to everyday questions (`benchmarks/make_corpus.py`).

It tells how language and code usually go on, before a text has shown how it goes on itself.
"""

from __future__ import annotations

from importlib import resources


def corpus_text() -> str:
    """All of it."""
    return (resources.files("localspec.methods.ptd") / "corpus.txt").read_text(encoding="utf-8")
