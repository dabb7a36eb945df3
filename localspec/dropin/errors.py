"""Errors of the drop-in back end: localspec's, of kinds that code written for llama_cpp catches too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localspec.errors import ContextLengthError, LocalspecError, ModelError, ModelNotFoundError, UsageError


class CallError(UsageError, ValueError):
    """An argument that cannot be used as given."""


class PromptLengthError(ContextLengthError, ValueError):
    """The prompt does not fit the context window."""


class ModelFileError(ModelError, ValueError):
    """A model file that cannot be used."""


class ModelPathError(ModelNotFoundError, ValueError):
    """A model name or path that leads nowhere."""


class AbsentError(UsageError, NotImplementedError, AttributeError):
    """Something of llama_cpp that localspec does not have; the hint names what there is instead."""


class PackageError(UsageError, ImportError):
    """A package that is needed for a call is not installed."""


#: the special before the general
_TWINS: tuple[tuple[type[LocalspecError], type[LocalspecError]], ...] = (
    (ModelNotFoundError, ModelPathError),
    (ModelError, ModelFileError),
    (ContextLengthError, PromptLengthError),
    (UsageError, CallError),
)


@contextmanager
def as_llama_cpp() -> Iterator[None]:
    """Raise errors of the user's making as what llama_cpp raises for them, a `ValueError`."""
    try:
        yield
    except LocalspecError as error:
        if isinstance(error, ValueError | NotImplementedError | ImportError):
            raise
        for kind, twin in _TWINS:
            if isinstance(error, kind):
                raise twin(error.message, error.hint) from error
        if error.http_status == 400:
            raise CallError(error.message, error.hint) from error
        raise
