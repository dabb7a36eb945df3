"""A plugin for the `llm` command: the models on this machine, by names that begin with "localspec/".

    llm -m localspec/smollm2-135m-instruct "hi"

Needs llm 0.36 or newer. It is loaded with every `llm` command, so it loads nothing itself before a model is asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import llm

from localspec import hub
from localspec.errors import LocalspecError


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Tell llm of the models; of none where that cannot be, as llm has others."""
    try:
        from localspec.llm_model import LocalspecModel
    except ImportError as error:
        warnings.warn(f"localspec's models need llm 0.36 or newer: {error}", stacklevel=2)
        return
    try:
        models = hub.local_models()
    except (OSError, LocalspecError) as error:
        warnings.warn(f"localspec's models cannot be listed: {error}", stacklevel=2)
        return
    for model in models:
        register(LocalspecModel(model.name))
