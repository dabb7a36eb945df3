"""The methods that draft with a second model."""

from __future__ import annotations

from localspec.calibrate.curve import CostCurve
from localspec.errors import UsageError
from localspec.methods.base import Method
from localspec.methods.draft.drafter import MAX_DRAFT, DraftDrafter, DraftModel
from localspec.methods.draft.governor import DraftGovernor
from localspec.methods.fixed import Fixed
from localspec.methods.strict import StrictVerifier

#: "draft-chain" is "draft" without leaves beside its chain
DRAFT_NAMES = ("draft", "draft-chain")
#: tokens that "draft" considers at each place
WIDTH = 3


def make_draft_method(
    name: str, model: DraftModel | None, curve: CostCurve | None, max_nodes: int, *, governed: bool = True
) -> Method:
    """The method called `name`, one of `DRAFT_NAMES`; see `registry.make_method`.

    Raises `UsageError` without a draft model.
    """
    if model is None:
        raise UsageError(
            f"{name} drafts with a second model, and there is none",
            "name a small model with the same vocabulary: --draft MODEL",
        )
    governor = DraftGovernor(curve, max_nodes, model.cache.times) if governed else None
    drafter = DraftDrafter(model, governor, width=1 if name == "draft-chain" else WIDTH)
    if governor is not None:
        governor.why_not = drafter.why_not
    scheduler = governor or Fixed(min(max_nodes, MAX_DRAFT + 1))
    return Method(name, drafter, scheduler, StrictVerifier(), draft_ctx=model.cache.ctx)
