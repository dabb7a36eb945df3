"""Makes logs: answers prompts and writes down the best candidates of every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.bench.prompts import Prompt
from localspec.decode import Limits
from localspec.engine.base import Rows
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError
from localspec.events import DoneEvent, StepEvent
from localspec.methods.base import Drafter, Method, Walk
from localspec.replay.log import LoggedAnswer, LogWriter
from localspec.session import Session
from localspec.tree import Tree

#: candidates of each row that a log keeps
DEFAULT_K = 8
#: called with answers done and answers in all
Progress = Callable[[int, int], None]


class RecordingDrafter:
    """Drafts as `drafter` does and keeps the `k` best candidates of each row that an emitted token was drawn from."""

    def __init__(self, drafter: Drafter, k: int = DEFAULT_K) -> None:
        self._drafter = drafter
        self._k = k
        self.rows: list[tuple[list[int], list[float]]] = []

    def start(self, prompt: Sequence[int]) -> None:
        self.rows = []
        self._drafter.start(prompt)

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        return self._drafter.propose(max_nodes, least_p)

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        for node in (0, *walk.path)[: len(walk.tokens)]:
            self.rows.append(rows.top_k(node, self._k))
        self._drafter.observe(tree, rows, walk)


def record_answer(
    session: Session, prompt: Prompt, sampling: SamplingParams, max_tokens: int, method: str | None = None
) -> LoggedAnswer:
    """Answer one prompt with `method` (None: that of the session), which has no influence on the answer."""
    base = session.method(method)
    drafter = RecordingDrafter(base.drafter)
    recording = Method(base.name, drafter, base.scheduler, base.verifier)
    tokens = session.chat_prompt([{"role": "user", "content": prompt.text}])
    answer: list[int] = []
    done: DoneEvent | None = None
    limits = Limits(max_tokens=max_tokens, stops=session.template.stops)
    for event in session.generate(tokens, sampling, limits, recording):
        if isinstance(event, StepEvent):
            answer += event.tokens
        elif isinstance(event, DoneEvent):
            done = event
    if done is None or not answer:
        raise EngineError(f"the answer to prompt {prompt.id} did not end")
    ids, logits = zip(*drafter.rows[: len(answer)], strict=True)
    return LoggedAnswer(prompt.id, prompt.task, tuple(tokens), tuple(answer), list(ids), list(logits))


def record(
    session: Session,
    prompts: Sequence[Prompt],
    path: Path,
    *,
    sampling: SamplingParams,
    max_tokens: int,
    method: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Answer `prompts` and append them to the log at `path`; those that it holds already are skipped.

    `method` answers (None: that of the session); it has no influence on the answers.

    Returns how many were made. Raises `UsageError` when the log is of another model or other settings.
    """
    header = {
        "model": session.name,
        "fingerprint": session.model.fingerprint,
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "seed": sampling.seed if sampling.temperature > 0 else None,
        "k": DEFAULT_K,
    }
    with LogWriter(path, header) as writer:
        todo = [prompt for prompt in prompts if prompt.id not in writer.done]
        for n, prompt in enumerate(todo, start=1):
            writer.append(record_answer(session, prompt, sampling, max_tokens, method))
            if progress is not None:
                progress(n, len(todo))
    return len(todo)
