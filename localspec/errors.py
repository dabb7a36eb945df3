"""The error family of localspec.

Every error that a person can cause or meet is a :class:`LocalspecError` with a one-line message (what, and why) and,
where there is one, a hint (the way out). The command line maps `exit_code` and a server maps `http_status`; nothing
else in the package knows about either.
"""

from __future__ import annotations


class LocalspecError(Exception):
    """A failure that is told to the user in one line, without a traceback."""

    exit_code = 1
    http_status = 500

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(LocalspecError):
    """An argument, option or input file that cannot be used as given."""

    exit_code = 2
    http_status = 400


class ModelError(LocalspecError):
    """A model file that exists but cannot be used: damaged, of another version, or of an unsupported kind."""

    exit_code = 3
    http_status = 400


class ModelNotFoundError(ModelError):
    """A model name or path that leads nowhere."""

    http_status = 404


class EngineError(LocalspecError):
    """The native library refused or failed."""

    exit_code = 4


class ContextLengthError(EngineError):
    """The prompt does not fit the context window."""

    exit_code = 5
    http_status = 400


class DownloadError(LocalspecError):
    """A download that failed or whose content is not what was promised."""

    exit_code = 6
    http_status = 502


class ServerError(LocalspecError):
    """A server that cannot be reached, that refuses, or whose answers are not those of localspec."""

    exit_code = 7
    http_status = 502
