"""The `speculation` object of requests and replies."""

from __future__ import annotations

from typing import Any

from localspec.server.errors import ParamError
from localspec.serving.api import Facts, Speculation

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


def told(speculation: Speculation, requested: str | None) -> dict[str, Any]:
    """What a reply tells of its speculation."""
    speedup = speculation.speedup
    return {
        "method": "off" if speculation.method == "plain" else speculation.method,
        "requested": requested or "auto",
        "lossless": speculation.lossless,
        "forgiven": speculation.forgiven,
        "tokens_per_step": round(speculation.tokens_per_step, 3),
        "speedup_vs_plain": None if speedup is None else round(speedup, 3),
        "reason": speculation.reason,
        "drafted": speculation.drafted,
        "accepted": speculation.accepted,
    }
