"""Loading the model of a session, and a second, small one that drafts for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec import hub
from localspec.engine.base import TreeContext
from localspec.engine.model import LoadProgress, Model
from localspec.engine.params import ContextParams
from localspec.errors import ModelError
from localspec.methods.draft.cache import DraftCache
from localspec.methods.draft.drafter import DraftModel

#: called with what is going on ("loading the model", "measuring this machine") and the share that is done, 0 to 1
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class DraftRequest:
    """Which model is to draft (a name or a path), and with how many cells of context; None: as many as the target has,
    or as the model was trained for, if that is less."""

    model: str | Path
    n_ctx: int | None = None


@dataclass(frozen=True)
class SecondModel:
    """A loaded draft model with its context, of `params`. `n_common` ids, from 0 on, mean the same tokens as the
    target's."""

    model: Model
    ctx: TreeContext
    n_common: int
    params: ContextParams

    @property
    def name(self) -> str:
        """What people call it."""
        return hub.name_of(self.model.path)

    def for_drafter(self, eog: frozenset[int], ctx: TreeContext | None = None) -> DraftModel:
        """What drafters need of it, all in turn; `eog` are the target's tokens that end a text. Drafters that take no
        turns have a context `ctx` each: see `another`."""
        return DraftModel(DraftCache(ctx or self.ctx), self.n_common, eog | self.model.eog)

    def another(self) -> TreeContext:
        """One more context like its own."""
        return self.model.new_context(self.params)

    def close(self) -> None:
        """Free context and model. Idempotent."""
        self.model.close()


def load_models(
    model: str | Path | None,
    draft: DraftRequest | None,
    context: ContextParams,
    *,
    n_gpu_layers: int = -1,
    use_mmap: bool = True,
    progress: Progress | None = None,
) -> tuple[Model, SecondModel | None]:
    """Load a model and, if one is asked for, the one that drafts for it; `context` is that of the first.

    Raises `ModelError` for files that cannot be used and models that do not fit each other, `UsageError` for a context
    size that cannot be, and `EngineError` when the memory does not suffice, for both beside each other.
    """

    def watch(stage: str) -> LoadProgress:
        def tell(share: float) -> bool:
            if progress is not None:
                progress(stage, share)
            return True

        return tell

    def load(path: Path, stage: str) -> Model:
        return Model.load(path, n_gpu_layers=n_gpu_layers, use_mmap=use_mmap, progress=watch(stage))

    path = hub.find_model(model)
    second = None if draft is None else _find(draft, path, context, n_gpu_layers)
    target = load(path, "loading the model")
    if draft is None or second is None:
        return target, None
    try:
        draft_path, n_common = second
        return target, _fit(draft, load(draft_path, "loading the draft model"), n_common, target, context)
    except BaseException:
        target.close()
        raise


def _find(draft: DraftRequest, target: Path, context: ContextParams, n_gpu_layers: int) -> tuple[Path, int]:
    """The file of the draft model, if the models fit each other and both fit into memory, and how many ids they have
    in common. No weights are read for that."""
    from localspec.engine.weightless import open_weightless
    from localspec.pairs.compare import check_pair
    from localspec.pairs.memory import check_memory

    path = hub.find_model(draft.model)
    n_ctx = draft.n_ctx or context.n_ctx
    if not draft.n_ctx and n_ctx and context.partitioned:
        n_ctx //= context.n_seq_max
    params = replace(context, n_ctx=n_ctx, hidden=False, n_seq_max=1, partitioned=False)
    params.validate()
    with open_weightless(target) as ours, open_weightless(path) as theirs:
        n_common = check_pair(ours, theirs)
        check_memory(ours, context, theirs, params, n_gpu_layers)
    return path, n_common


def _fit(draft: DraftRequest, model: Model, n_common: int, target: Model, context: ContextParams) -> SecondModel:
    """Make the loaded draft model a context, with the threads, cache types and mode of the target's."""
    try:
        own = context.resolve_n_ctx(target.n_ctx_train) // (context.n_seq_max if context.partitioned else 1)
        n_ctx = min(draft.n_ctx or own, model.n_ctx_train)
        params = replace(context, n_ctx=n_ctx, hidden=False, n_seq_max=1, partitioned=False)
        ctx = model.new_context(params)
        if ctx.max_nodes == 1:
            raise ModelError(f"{model.path.name} cannot draft: {ctx.tree_limit_reason}", "choose another draft model")
    except BaseException:
        model.close()
        raise
    return SecondModel(model, ctx, n_common, params)
