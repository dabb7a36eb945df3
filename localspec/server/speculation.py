"""The `speculation` object of requests; `reports.told` makes that of replies."""

from __future__ import annotations

from localspec.errors import UsageError
from localspec.server.errors import ParamError
from localspec.serving.api import Facts

#: rules of acceptance that requests can name
RULES = ("strict", "typical", "loose")


def asked(method: str | None, accept: str | None, facts: Facts) -> tuple[str | None, str | None]:
    """The engine's method and rule of acceptance for what a client asks for.

    Raises `ParamError` for what does not exist, and for what this model has not got.
    """
    if accept is not None and accept not in RULES:
        raise ParamError("speculation.accept", f"there is no rule {accept!r}", f"one of {', '.join(RULES)}")
    if method is None or method == "auto":
        return None, accept
    # not needed by servers that nobody asks for a method, and it loads the native library
    from localspec.serving.methods import asked as engine_asked

    try:
        found = engine_asked(method, facts.methods)
    except UsageError as error:
        raise ParamError("speculation.method", error.message, error.hint) from None
    return found.method, accept or found.accept
