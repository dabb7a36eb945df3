"""The speculation methods as requests name them, and the method that each text on an engine uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.methods.base import Method
from localspec.methods.company import SharedCost, TextCost
from localspec.methods.governor import Governor
from localspec.methods.registry import DRAFT_NAMES
from localspec.session import Session

#: names of methods in requests, beside those of `localspec.methods.registry`
REQUEST_NAMES = ("auto", "off", "entmtp", "ptd", "fly", "lookup", "draft")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request's name of a method means: `Request.method` and `Request.accept`."""

    method: str | None
    accept: str | None = None


def asked(name: str | None, methods: Sequence[str]) -> Asked:
    """What `name` means on an engine that has `methods`. "entmtp" is its policy "value" where a bank of trees was
    calibrated, else heads without a bank; "fly" is a draft model with loose acceptance.

    Raises `UsageError` for a name that there is not, or not here.
    """
    if name is None or name == "auto":
        return Asked(None)
    if name == "off":
        return Asked("plain")
    method = {"entmtp": "entmtp-value", "fly": "draft"}.get(name, name)
    if name == "entmtp" and method not in methods:
        method = "heads"
    if method not in methods:
        raise UsageError(
            f"speculation method {name!r} cannot be used with this model",
            f"one of auto, off, {', '.join(other for other in methods if other not in ('auto', 'plain'))}",
        )
    return Asked(method, "loose" if name == "fly" else None)


class SlotMethods:
    """The methods of one slot, made when they are first asked for. What they learn stays over texts."""

    def __init__(self, session: Session, shared: SharedCost, seq: int) -> None:
        self._session = session
        self._shared = shared
        self._seq = seq
        self._made: dict[str, Method] = {}

    def get(self, name: str | None) -> Method:
        """The method called `name`, None for that of the session. Raises `UsageError` for one that there is not."""
        session = self._session
        name = name or session.method_name
        if name not in self._made:
            draft = None
            if name in DRAFT_NAMES and session.draft is not None and self._seq:
                draft = session.draft.for_drafter(session.model.eog, session.draft.another())
            method = session.make_method(name, draft=draft)
            if isinstance(method.scheduler, Governor):
                method.scheduler.share(TextCost(self._shared))
            self._made[name] = method
        return self._made[name]
