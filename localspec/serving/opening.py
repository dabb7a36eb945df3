"""How a server opens models: each with slots, the default one with what it drafts with, or without if that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from localspec import hub
from localspec.engine.params import DEFAULT_N_CTX, ContextParams
from localspec.errors import EngineError, LocalspecError
from localspec.serving.resident import ServedEngine

if TYPE_CHECKING:
    from localspec.loading import Progress
    from localspec.session import Session

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How models are opened: `n_slots` slots of `n_ctx` tokens each (None: what the model was trained for, 8192 at
    most); `context` tells the rest of the context. `n_queue` requests may wait for each.

    `method`, `heads`, `draft` (with its context of `draft_n_ctx` tokens) and `task` are for the model `default` alone,
    named as `hub.find_model` takes it; others decide for themselves. When `draft` or `heads` cannot be used, the model
    does without them and a warning is given; if `strict`, that is an error.
    """

    default: str | Path | None = None
    n_slots: int = 4
    n_ctx: int | None = None
    n_queue: int = 64
    context: ContextParams = field(default_factory=ContextParams)
    method: str | None = None
    heads: tuple[Path, ...] = ()
    draft: str | Path | None = None
    draft_n_ctx: int | None = None
    task: str | None = None
    n_gpu_layers: int = -1
    use_mmap: bool = True
    strict: bool = False

    def without_drafts(self) -> Setup:
        """The same for a model that drafts with what it has."""
        return replace(self, method=None, heads=(), draft=None, draft_n_ctx=None, task=None)


class SessionOpener:
    """`serving.resident.Opener` of engines over sessions. `warnings` tells what models do without.

    `make` turns a session, and the places in its queue, into an engine; without it that is a `BatchEngine`.
    """

    def __init__(self, setup: Setup, make: Callable[[Session, int], ServedEngine] | None = None) -> None:
        self._setup = setup
        self._make = make or batch_engine
        self.warnings: list[str] = []

    def need(self, path: Path) -> int:
        """See `Opener.need`. A draft model or heads that are not there are left out of it: they will be warned of."""
        from localspec.machine import load_native

        load_native()
        from localspec.serving.footprint import footprint

        setup, context = self._setup_of(path), self._context(path)
        estimate = partial(
            footprint,
            path,
            context,
            heads=setup.heads,
            speculation=setup.method != "plain",
            n_gpu_layers=setup.n_gpu_layers,
        )
        if setup.draft is not None:
            try:
                return estimate(draft=(hub.find_model(setup.draft), setup.draft_n_ctx)).total
            except LocalspecError as error:
                log.debug("the draft model is left out of the estimate: %s", error)
        return estimate().total

    def free(self) -> int | None:
        """See `Opener.free`."""
        from localspec.serving.footprint import free_memory

        return free_memory(self._setup.n_gpu_layers)

    def used(self) -> int | None:
        """See `Opener.used`."""
        from localspec.serving.footprint import used_memory

        return used_memory()

    def open(self, path: Path, progress: Progress) -> ServedEngine:
        """See `Opener.open`. Raises what `Session.open` does."""
        from localspec.gguf_check import check_gguf
        from localspec.machine import load_native

        progress("loading the library", 0.0)
        load_native()
        info = check_gguf(path)
        if info.metadata.get(f"{info.arch}.attention.causal") is False:
            from localspec.serving.encoder import EncoderEngine

            return EncoderEngine.open(
                path, self._context(path), self._setup.n_gpu_layers, self._setup.n_queue, progress
            )
        session = self._session(path, progress)
        session.on_progress(None)
        try:
            return self._make(session, self._setup.n_queue)
        except BaseException:
            session.close()
            raise

    def _setup_of(self, path: Path) -> Setup:
        """How the model in `path` is opened."""
        try:
            is_default = hub.find_model(self._setup.default).samefile(path)
        except (LocalspecError, OSError):
            is_default = False
        return self._setup if is_default else self._setup.without_drafts()

    def _context(self, path: Path) -> ContextParams:
        """The context of a model: a part for each slot."""
        setup = self._setup
        n_ctx = setup.n_ctx
        if not n_ctx:
            from localspec.gguf_check import check_gguf

            n_ctx = min(check_gguf(path).n_ctx_train or DEFAULT_N_CTX, DEFAULT_N_CTX)
        return replace(setup.context, n_ctx=n_ctx * setup.n_slots, n_seq_max=setup.n_slots, partitioned=True)

    def _session(self, path: Path, progress: Progress) -> Session:
        """The model, with as much of what it was to draft with as can be used."""
        setup = self._setup_of(path)
        attempts = [setup]
        if not setup.strict:
            attempts += [each for each in _lesser(setup) if each not in attempts]
        failure: LocalspecError | None = None
        for attempt in attempts:
            try:
                session = self._try(attempt, path, progress)
            except LocalspecError as error:
                log.debug("%s could not be opened as %s: %s", path.name, attempt, error)
                failure = failure or error
            else:
                if failure is not None:
                    self._warn(setup, attempt, failure)
                return session
        raise failure or EngineError(f"{path.name} could not be opened")

    def _try(self, setup: Setup, path: Path, progress: Progress) -> Session:
        from localspec.loading import DraftRequest
        from localspec.session import Session

        draft = None if setup.draft is None else DraftRequest(setup.draft, setup.draft_n_ctx)
        return Session.open(
            path,
            context=self._context(path),
            method=setup.method,
            n_gpu_layers=setup.n_gpu_layers,
            use_mmap=setup.use_mmap,
            heads=setup.heads,
            draft=draft,
            task=setup.task,
            progress=progress,
        )

    def _warn(self, asked: Setup, got: Setup, why: LocalspecError) -> None:
        lost = []
        if asked.draft is not None and got.draft is None:
            lost.append(f"the draft model {asked.draft}")
        if asked.heads and not got.heads:
            lost.append("the heads " + ", ".join(path.name for path in asked.heads))
        warning = f"without {' and '.join(lost)}: {why}"
        self.warnings.append(warning)
        log.warning("%s", warning)


def _lesser(setup: Setup) -> list[Setup]:
    """What to try in place of `setup`: without its draft model, without its heads, without either."""
    from localspec.methods.registry import DRAFT_NAMES

    tries = []
    if setup.draft is not None:
        method = None if setup.method in DRAFT_NAMES else setup.method
        tries.append(replace(setup, draft=None, draft_n_ctx=None, method=method))
    if setup.heads:
        tries.append(replace(setup, heads=(), method=None, task=None))
    if setup.draft is not None and setup.heads:
        tries.append(setup.without_drafts())
    return tries


def batch_engine(session: Session, n_queue: int) -> ServedEngine:
    """The engine of a session, with embeddings."""
    from localspec.chat_format.choose import chat_format
    from localspec.serving.embedding import Embedder
    from localspec.serving.engine import BatchEngine
    from localspec.serving.facts import facts_of

    model, params, n_ctx = session.model, session.params, session.ctx.n_ctx
    return BatchEngine(
        session,
        facts_of(session),
        chat_format(model),
        n_queue=n_queue,
        embedder=lambda: Embedder(model, params, n_ctx),
    )
