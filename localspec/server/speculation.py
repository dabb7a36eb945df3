"""The `speculation` object of requests and replies."""

from __future__ import annotations

from localspec.server.errors import ParamError
from localspec.server.reports import told
from localspec.serving.api import Facts

__all__ = ["METHODS", "RULES", "asked", "told"]

#: methods as clients name them -> (as engines do, None for the engine's own; the rule of acceptance that comes with it)
METHODS: dict[str, tuple[str | None, str | None]] = {
    "auto": (None, None),
    "off": ("plain", None),
    "entmtp": ("entmtp-value", None),
    "ptd": ("ptd", None),
    "lookup": ("lookup", None),
    "draft": ("draft", None),
    "fly": ("draft", "loose"),
}
RULES = ("strict", "typical", "loose")


def asked(method: str | None, accept: str | None, facts: Facts) -> tuple[str | None, str | None]:
    """The engine's method and rule of acceptance for what a client asks for.

    Raises `ParamError` for what does not exist, and for what this model has not got.
    """
    if method is None:
        name, rule = None, None
    elif method in METHODS:
        name, rule = METHODS[method]
    else:
        raise ParamError("speculation.method", f"there is no method {method!r}", f"one of {', '.join(METHODS)}")
    if accept is not None and accept not in RULES:
        raise ParamError("speculation.accept", f"there is no rule {accept!r}", f"one of {', '.join(RULES)}")
    if name == "entmtp-value" and name not in facts.methods and "heads" in facts.methods:
        name = "heads"
    if name is not None and name not in facts.methods:
        offered = [each for each, (its, _) in METHODS.items() if its is None or its in facts.methods]
        raise ParamError(
            "speculation.method",
            f"the model {facts.name} has nothing for the method {method!r}",
            f"it can do: {', '.join(offered)}",
        )
    return name, accept or rule
