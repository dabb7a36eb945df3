"""Makes the text of `localspec.methods.ptd.corpus` from recorded answers.

    localspec record a.log -m a.gguf -n 256 --prompts benchmarks/corpus_prompts.jsonl     # and so for other models
    python benchmarks/make_corpus.py a.log=a.gguf b.log=b.gguf -o localspec/methods/ptd/corpus.txt

An answer that begins to repeat itself is cut there: small models do so without end. The answers are shuffled, so that a
part of the text is like the whole.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

from localspec.engine.model import Model
from localspec.replay.log import AnswerLog

#: a line of so many characters that comes more often than that in one answer ends it
LONG, OFTEN = 12, 2


def without_loops(answer: str) -> str:
    """The answer up to a line that was there `OFTEN` times before."""
    lines = answer.split("\n")
    seen: Counter[str] = Counter()
    for i, line in enumerate(lines):
        if len(line) >= LONG:
            seen[line] += 1
            if seen[line] > OFTEN:
                return "\n".join(lines[:i])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="LOG=MODEL", help="a recording and the file of its model")
    parser.add_argument("-o", "--output", required=True, type=Path)
    args = parser.parse_args()
    answers: list[str] = []
    for source in args.sources:
        log, _, model_file = source.partition("=")
        with Model.load(model_file) as model:
            for answer in AnswerLog.read(Path(log)).answers:
                tokens = [token for token in answer.tokens if token not in model.eog]
                answers.append(without_loops(model.text(tokens).decode("utf-8", errors="ignore")).strip())
    random.Random(0).shuffle(answers)
    text = "\n\n".join(answer for answer in answers if answer) + "\n"
    args.output.write_text(text, encoding="utf-8")
    print(f"{len(answers)} answers, {len(text)} characters")


if __name__ == "__main__":
    main()
