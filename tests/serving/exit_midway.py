"""A program that ends while an answer is written."""

import sys
from pathlib import Path

from localspec.serving.api import Request, Written
from tests.serving.conftest import open_engine

engine = open_engine(Path(sys.argv[1]), n_slots=1)
answer = engine.submit(Request(prompt=engine.tokenize("Once upon a time"), max_tokens=500, ignore_eos=True))
print(any(isinstance(update, Written) for update in answer))
kept = engine.submit(Request(prompt=engine.tokenize("Once upon a time"), max_tokens=500, ignore_eos=True))
next(iter(kept))
