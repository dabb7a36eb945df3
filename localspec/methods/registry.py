"""The speculation methods by name."""

from __future__ import annotations

from localspec.calibrate.curve import CostCurve
from localspec.errors import UsageError
from localspec.methods.base import Method
from localspec.methods.governor import Fixed, Governor
from localspec.methods.lookup import LookupDrafter
from localspec.methods.plain import PlainDrafter
from localspec.methods.strict import StrictVerifier

METHOD_NAMES = ("auto", "lookup", "plain")

#: largest tree, root included: with 64 rows and more, flash attention on the CPU sums in another order, and the text
#: would no longer be that of plain decoding to the last bit
MAX_TREE_NODES = 63


def make_method(
    name: str,
    *,
    curve: CostCurve | None,
    max_nodes: int,
    governed: bool = True,
    limit_reason: str | None = None,
) -> Method:
    """A fresh method for one sequence.

    `curve` is the calibrated step cost, None when unknown. `max_nodes` is what the engine allows; at 1 every method is
    plain, and tells `limit_reason` once a generation. Without `governed` every draft is verified, up to `max_nodes`
    nodes, but never more than `MAX_TREE_NODES`. "auto" is the best method known for the model, so the result's own name
    says which one that is.

    Raises `UsageError` for an unknown name.
    """
    if name not in METHOD_NAMES:
        raise UsageError(f"there is no method {name!r}", f"one of {', '.join(METHOD_NAMES)}")
    if name == "plain" or max_nodes == 1:
        note = None if name == "plain" or limit_reason is None else f"spec off: {limit_reason}"
        return Method("plain", PlainDrafter(), Fixed(1, note), StrictVerifier())
    max_nodes = min(max_nodes, MAX_TREE_NODES)
    scheduler = Governor(curve, max_nodes) if governed else Fixed(max_nodes)
    return Method("lookup", LookupDrafter(), scheduler, StrictVerifier())
