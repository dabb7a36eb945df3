"""The `speculation` object of requests and replies."""

from __future__ import annotations

from contextlib import suppress

from localspec.errors import UsageError
from localspec.server.errors import ParamError
from localspec.server.reports import told
from localspec.serving.api import Facts

__all__ = ["RULES", "asked", "told"]

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
    from localspec.serving.methods import REQUEST_NAMES
    from localspec.serving.methods import asked as engine_asked

    found = {}
    for name in REQUEST_NAMES:
        with suppress(UsageError):
            found[name] = engine_asked(name, facts.methods)
    if method not in found:
        message = f"the model {facts.name} has nothing for the method {method!r}"
        raise ParamError("speculation.method", message, f"one of {', '.join(found)}")
    return found[method].method, accept or found[method].accept
