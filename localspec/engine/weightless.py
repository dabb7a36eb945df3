"""A model file opened for what it says of itself: vocabulary, sizes, kind. No weights are read."""

from __future__ import annotations

import os
from pathlib import Path

from llama_cpp import llama_cpp as L

from localspec.engine import logs
from localspec.engine.model import Model, init_backend, set_gpu_layers
from localspec.errors import LocalspecError, ModelError
from localspec.gguf_check import check_gguf


def open_weightless(path: str | os.PathLike[str], *, encoder: bool = False) -> Model:
    """A `Model` that must not get a context: its tensors have shapes but no data. About 0.2 s for 150,000 tokens.

    Unlike llama.cpp's vocabulary-only loading, which knows no sizes (and ends the process when asked for the number of
    heads), this reads all hyperparameters and checks that every tensor is there in the right shape. So what opens here
    can be loaded, as far as that can be told without the weights.

    `encoder` is that of `Model.load`. Raises what that raises: `ModelNotFoundError` and `ModelError`.
    """
    path = Path(path).expanduser()
    check_gguf(path)
    init_backend()
    params = L.llama_model_default_params()
    set_gpu_layers(params, 0)
    params.no_alloc = True
    params.load_mode = L.LLAMA_LOAD_MODE_NONE  # a mapping would be data
    mark = logs.n_errors()
    handle = L.llama_model_load_from_file(os.fsencode(path), params)
    if not handle:
        raise ModelError(f"{path.name} cannot be loaded: {logs.reason(mark, 'the library gave no reason')}")
    model = Model(handle, path, 0)
    try:
        model.refuse_unsupported(encoder)
    except LocalspecError:
        model.close()
        raise
    return model
