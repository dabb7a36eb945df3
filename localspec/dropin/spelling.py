"""Methods whose parameters are the fields of a dataclass: listed once, seen by people, editors and type checkers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
Call = TypeVar("Call")
Result = TypeVar("Result")
Params = ParamSpec("Params")


def spelled_by(
    call: Callable[Params, Call],
) -> Callable[[Callable[[Self, Call], Result]], Callable[Concatenate[Self, Params], Result]]:
    """Have a method take the arguments of `call` and get what that makes of them."""

    def decorate(method: Callable[[Self, Call], Result]) -> Callable[Concatenate[Self, Params], Result]:
        @functools.wraps(method)
        def bound(self: Self, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
            return method(self, call(*args, **kwargs))

        first = next(iter(inspect.signature(method).parameters.values()))
        spelled = inspect.signature(call)
        parameters = [first.replace(kind=inspect.Parameter.POSITIONAL_ONLY), *spelled.parameters.values()]
        bound.__signature__ = spelled.replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=inspect.signature(method).return_annotation
        )
        return bound

    return decorate
