"""Errors of the engine in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.errors import LocalspecError

#: parameters of the engine -> the options that set them
_OPTIONS = {
    "n_ctx": "--ctx-size",
    "n_threads": "--threads",
    "n_gpu_layers": "--gpu-layers",
    "temperature": "--temp",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "typical_p": "--typical",
    "repeat_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
    "logit_bias": "--logit-bias",
    "json_schema": "--json-schema",
}
_FIELD = re.compile(rf"\b({'|'.join(_OPTIONS)})\b(=?)|^(seed)(?= is )")


@contextmanager
def named_as_options() -> Iterator[None]:
    """Errors raised inside speak of options (--ctx-size) where the engine speaks of its parameters (n_ctx)."""

    def option(match: re.Match[str]) -> str:
        return "--seed" if match[3] else _OPTIONS[match[1]] + (" " if match[2] else "")

    try:
        yield
    except LocalspecError as error:
        error.message = _FIELD.sub(option, error.message)
        error.hint = None if error.hint is None else _FIELD.sub(option, error.hint)
        raise
