"""The speculation methods by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from localspec.calibrate.curve import CostCurve
from localspec.errors import UsageError
from localspec.events import OFF
from localspec.methods.base import Drafter, Method
from localspec.methods.draft.drafter import DraftModel
from localspec.methods.draft.methods import DRAFT_NAMES, make_draft_method
from localspec.methods.fixed import Fixed
from localspec.methods.governor import Governor
from localspec.methods.head_methods import BANK_NAMES, HEAD_NAMES, HeadKit, make_head_drafter, make_head_method
from localspec.methods.lookahead import LookaheadDrafter
from localspec.methods.lookup import LookupDrafter
from localspec.methods.plain import PlainDrafter
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.ptd.native import Corpus, Pool
from localspec.methods.ptd.published import PublishedDrafter
from localspec.methods.ptd.scout import Scout
from localspec.methods.strict import StrictVerifier
from localspec.methods.union import UnionDrafter

#: ptd and heads in one tree
UNION = "ptd+heads"
#: what people use
METHOD_NAMES = ("auto", "ptd", UNION, "heads", "draft", "lookup", "plain")
#: what those are measured against: published methods as they are published, and ptd without branches; "draft-chain" is
#: another rival, where there is a draft model
RIVAL_NAMES = ("ptd-published", "lookahead", "ptd-chain")

#: largest tree, root included: with 64 rows and more, attention on CPUs without the row kernels sums in another order
MAX_TREE_NODES = 63


def check_method(name: str) -> None:
    """Raise `UsageError` for a name that is no method's."""
    if name not in METHOD_NAMES + RIVAL_NAMES + HEAD_NAMES + DRAFT_NAMES:
        raise UsageError(f"there is no method {name!r}", f"one of {', '.join(METHOD_NAMES)}")


def default_method(with_draft: bool) -> str:
    """The method where none was named: with a draft model it is what drafts."""
    return "draft" if with_draft else "auto"


def uses_heads(name: str) -> bool:
    """Whether the method called `name` drafts with heads, where there are any."""
    return name in (*HEAD_NAMES, UNION, "auto")


def uses_bank(name: str) -> bool:
    """Whether the method called `name` takes its trees from a calibrated bank."""
    return name in BANK_NAMES


def check_bank_use(method: str, task: str | None) -> None:
    """Raise `UsageError` for a bank, that for `task`, which `method` would not look at; None is no bank."""
    check_method(method)
    if task is not None and not uses_bank(method):
        raise UsageError(
            f"the method {method} takes no bank of trees, so that for {task} would do nothing",
            f"leave out --bank, or choose a method with a bank: {', '.join(BANK_NAMES)}",
        )


def make_drafter(
    name: str, eog: frozenset[int] = frozenset(), pool: Pool | None = None, corpus: Corpus | None = None
) -> Drafter:
    """A fresh drafter of the method called `name`, without heads or a draft model; see `make_method`.

    Raises `UsageError` for an unknown name, and for a method that drafts with one of these alone.
    """
    check_method(name)
    if name in HEAD_NAMES + DRAFT_NAMES:
        means = "heads" if name in HEAD_NAMES else "a draft model"
        raise UsageError(
            f"{name} drafts with {means}, which cannot be done here", f"one of {', '.join(RIVAL_NAMES)}, ptd"
        )
    makers: dict[str, Callable[[], object]] = {
        "plain": PlainDrafter,
        "lookup": LookupDrafter,
        "ptd": lambda: PtdDrafter(pool, corpus=corpus, keep=pool is not None),
        "ptd-chain": lambda: PtdDrafter(pool, corpus=corpus, keep=pool is not None, width=1),
        "ptd-published": lambda: PublishedDrafter(eog),
        "lookahead": lambda: LookaheadDrafter(eog),
    }
    return cast(Drafter, makers["ptd" if name in ("auto", UNION) else name]())


def make_method(
    name: str,
    *,
    curve: CostCurve | None,
    max_nodes: int,
    governed: bool = True,
    limit_reason: str | None = None,
    eog: frozenset[int] = frozenset(),
    pool: Pool | None = None,
    corpus: Corpus | None = None,
    heads: HeadKit | None = None,
    draft: DraftModel | None = None,
) -> Method:
    """A fresh method for one sequence.

    `curve` is the calibrated step cost, None when unknown. `max_nodes` is what the engine allows; at 1 every method is
    plain, and tells `limit_reason` once a generation. Without `governed` every draft is verified, up to `max_nodes`
    nodes, but never more than `MAX_TREE_NODES`. `eog` are the tokens that end a generation. `pool` outlives the texts
    that the method drafts for, and may be shared; without one nothing does, and a new one has `corpus`. `heads` is what
    methods on heads need, `draft` what those with a second model need. "auto" is the best method known for the model,
    so the result's own name says which one that is.

    Published methods have sizes of their own, and are never governed. Those without heads may take all nodes that the
    engine allows.

    Raises `UsageError` for an unknown name, and for a method on heads or with a draft model that has none.
    """
    check_method(name)
    if name == "plain" or max_nodes == 1:
        note = None if name == "plain" or limit_reason is None else f"{OFF}{limit_reason}"
        return Method("plain", PlainDrafter(), Fixed(1, note), StrictVerifier())
    heads = heads or HeadKit()
    if name == "auto":
        name = "ptd" if heads.hydra is None else UNION
    if name in HEAD_NAMES:
        return make_head_method(name, heads, curve, min(max_nodes, MAX_TREE_NODES), governed=governed)
    if name in DRAFT_NAMES:
        return make_draft_method(name, draft, curve, min(max_nodes, MAX_TREE_NODES), governed=governed)
    drafter = make_drafter(name, eog, pool, corpus)
    if name in ("ptd-published", "lookahead"):
        return Method(name, drafter, Fixed(max_nodes), StrictVerifier())
    max_nodes = min(max_nodes, MAX_TREE_NODES)
    governor = Governor(curve, max_nodes)
    if name == UNION:
        drafter = UnionDrafter(drafter, make_head_drafter(name, heads), governor if governed else None)
    scout = Scout(eog) if name in ("ptd", UNION) else None
    return Method(name, drafter, governor if governed else Fixed(max_nodes), StrictVerifier(), scout)
