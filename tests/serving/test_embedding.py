"""Embeddings: pooled as the model says, the same in any company, and equal to what the C API gives on its own."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from llama_cpp import llama_cpp as L

from localspec.engine import kernels
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import ContextLengthError, ModelError, UsageError
from localspec.serving import embedding
from localspec.serving.embedding import Embedder, plan
from tests.tiny_encoder import N_CTX_TRAIN, write_tiny_encoder
from tests.tiny_models import write_tiny
from tests.with_model import smollm

THREADS = 1


@pytest.fixture(scope="module", params=["llama", "gemma3", "mamba", "lfm2", "qwen2vl"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("embedding") / "tiny.gguf"
    with Model.load(write_tiny(path, request.param)) as model:
        yield model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("encoder") / "tiny.gguf"
    with Model.load(write_tiny_encoder(path), encoder=True) as model:
        yield model


def texts(n_vocab: int, lengths: Sequence[int], seed: int = 3) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(5, n_vocab) for _ in range(n)] for n in lengths]


def embedder(model: Model, **params: object) -> Embedder:
    return Embedder(model, ContextParams(n_threads=THREADS, **{"n_ctx": 1024, **params}))


def by_the_library(model: Model, tokens: Sequence[int], pooling: int) -> np.ndarray:
    """The embedding as llama.cpp itself pools it, in one batch of one text; of length 1."""
    params = L.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = THREADS
    params.embeddings, params.pooling_type = True, pooling
    ctx = L.llama_init_from_model(model.handle, params)
    try:
        array = (L.llama_token * len(tokens))(*tokens)
        assert L.llama_decode(ctx, L.llama_batch_get_one(array, len(tokens))) == 0
        pointer = ctypes.cast(L.llama_get_embeddings_seq(ctx, 0), ctypes.POINTER(ctypes.c_float))
        vector = np.ctypeslib.as_array(pointer, (L.llama_model_n_embd_out(model.handle),)).astype(np.float64)
    finally:
        L.llama_free(ctx)
    return vector / np.linalg.norm(vector)


LENGTHS = [5, 1, 40, 12, 63, 64, 7, 130, 300, 12]


def test_a_text_has_the_same_embedding_alone_and_among_others(tiny: Model) -> None:
    inputs = texts(tiny.n_vocab, LENGTHS)
    among = embedder(tiny)
    alone = [embedder(tiny).embed([tokens]).vectors[0] for tokens in inputs]
    together = among.embed(inputs)
    assert together.vectors == alone
    assert together.n_tokens == sum(LENGTHS)
    assert among.embed(inputs[::-1]).vectors == alone[::-1]
    assert np.linalg.norm(alone, axis=1) == pytest.approx(1.0, abs=1e-6)


def test_the_embedding_is_what_the_library_pools(tiny: Model) -> None:
    for tokens in texts(tiny.n_vocab, [9, 63, 200], seed=4):
        ours = embedder(tiny).embed([tokens]).vectors[0]
        # sums in another order, over quantised activations
        assert float(np.dot(ours, by_the_library(tiny, tokens, L.LLAMA_POOLING_TYPE_MEAN))) > 0.999


@pytest.mark.patched
@pytest.mark.skipif(not kernels.enabled(), reason="needs the row kernels")
def test_short_texts_share_passes(tmp_path: Path) -> None:
    with Model.load(write_tiny(tmp_path / "tiny.gguf")) as model:
        job = embedder(model).begin(texts(model.n_vocab, [6] * 20))
        n_passes = 1
        while not job.step():
            n_passes += 1
        assert n_passes <= 6
        assert len(job.result().vectors) == 20


def test_groups_are_of_similar_length_and_of_limited_size() -> None:
    assert plan([5, 1, 30, 4, 31], 3, 40) == [[1, 3, 0], [2], [4]]
    assert plan([1] * 7, 3, 40) == [[0, 1, 2], [3, 4, 5], [6]]
    assert plan([], 3, 40) == []


def test_an_encoder_embeds_and_does_nothing_else(encoder: Model, tmp_path: Path) -> None:
    words = encoder.tokenize("the tree of words", add_special=True)
    assert words[0] == 2 and words[-1] == 3, "[CLS] and [SEP] are around it"
    inputs = [words, words[:4], texts(encoder.n_vocab, [N_CTX_TRAIN])[0]]
    vectors = embedder(encoder).embed(inputs).vectors
    for tokens, ours in zip(inputs, vectors, strict=True):
        assert ours == pytest.approx(by_the_library(encoder, tokens, L.LLAMA_POOLING_TYPE_MEAN).tolist(), abs=1e-5)
    with pytest.raises(ModelError, match="embeds texts"):
        Model.load(encoder.path)


@pytest.mark.parametrize(("kind", "number"), [(gguf.PoolingType.CLS, 2), (gguf.PoolingType.LAST, 3)])
def test_the_model_says_how_it_is_pooled(kind: gguf.PoolingType, number: int, tmp_path: Path) -> None:
    with Model.load(write_tiny_encoder(tmp_path / "tiny.gguf", pooling=kind), encoder=True) as model:
        tokens = model.tokenize("trees of words", add_special=True)
        theirs = by_the_library(model, tokens, number)
        assert embedder(model).embed([tokens]).vectors[0] == pytest.approx(theirs.tolist(), abs=1e-5)


def test_a_reranker_is_refused(tmp_path: Path) -> None:
    with (
        Model.load(write_tiny_encoder(tmp_path / "tiny.gguf", pooling=gguf.PoolingType.RANK), encoder=True) as model,
        pytest.raises(ModelError, match="ranks"),
    ):
        embedder(model)


def test_inputs_that_cannot_be_are_refused_before_anything_is_read(encoder: Model, tmp_path: Path) -> None:
    with Model.load(write_tiny(tmp_path / "tiny.gguf")) as model:
        limited = embedder(model, n_ctx=256)
        with pytest.raises(ContextLengthError, match=r"257 tokens.*256"):
            limited.begin([[5], [5] * 257])
        with pytest.raises(UsageError, match="empty"):
            limited.begin([[5], []])
        with pytest.raises(UsageError, match="no token"):
            limited.begin([[model.n_vocab]])
        assert limited.embed([]).vectors == []
        assert len(limited.embed([[5] * 256]).vectors) == 1
    with pytest.raises(ContextLengthError, match=rf"{N_CTX_TRAIN + 1} tokens.*{N_CTX_TRAIN}"):
        embedder(encoder).begin([[4] * (N_CTX_TRAIN + 1)])


def test_without_normalisation_the_mean_itself_is_told(encoder: Model) -> None:
    tokens = encoder.tokenize("the tree", add_special=True)
    raw = embedder(encoder).embed([tokens], normalize=False).vectors[0]
    unit = embedder(encoder).embed([tokens]).vectors[0]
    length = float(np.linalg.norm(raw))
    assert length != pytest.approx(1.0, abs=1e-3)
    assert [value / length for value in raw] == pytest.approx(unit, abs=1e-6)


def test_idle_contexts_are_freed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Model.load(write_tiny(tmp_path / "tiny.gguf")) as model:
        made = []
        real = embedding.TokenStates
        monkeypatch.setattr(embedding, "TokenStates", lambda *args, **sizes: made.append(sizes) or real(*args, **sizes))
        kept = embedder(model)
        inputs = texts(model.n_vocab, [200, 20])
        first = kept.embed(inputs).vectors
        n_made = len(made)
        kept.release()
        assert kept.embed(inputs).vectors == first and len(made) == n_made, "it was in use just now"
        kept.release(0.0)
        assert kept.embed(inputs).vectors == first and len(made) == 2 * n_made


@pytest.mark.model
def test_smollm_embeds_the_same_in_any_company_and_knows_what_is_alike() -> None:
    with Model.load(smollm()) as model:
        lines = ["A cat sat on the mat.", "The kitten lay on the rug.", "Interest rates rose by two percent."]
        lines += [" ".join(lines * n) for n in (2, 4, 9)]
        inputs = [model.tokenize(line, add_special=True) for line in lines]
        made = embedder(model)
        together = made.embed(inputs).vectors
        assert together == [made.embed([tokens]).vectors[0] for tokens in inputs]
        for tokens, ours in zip(inputs, together, strict=True):
            assert float(np.dot(ours, by_the_library(model, tokens, L.LLAMA_POOLING_TYPE_MEAN))) > 0.999
        cat, kitten, money = (np.array(vector) for vector in together[:3])
        assert cat @ kitten > cat @ money
