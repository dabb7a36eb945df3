"""`localspec.Llama` beside its completions: options, tokens, embeddings, life, and the place of llama_cpp."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import localspec
from localspec.dropin.opening import Card, Opened
from localspec.dropin.options import context_params, read_options
from localspec.errors import ModelNotFoundError, UsageError
from tests.dropin.made import llama
from tests.server.fake import FakeEngine


def test_the_package_stays_light() -> None:
    code = (
        "import sys, localspec, localspec.dropin\n"
        "assert not {'llama_cpp', 'numpy', 'fastapi'} & set(sys.modules)\n"
        "assert not hasattr(localspec, 'nonsense')\n"
        "assert not {'llama_cpp', 'numpy', 'fastapi'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_stands_in_for_the_module() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    assert localspec.LlamaGrammar is llama_cpp.LlamaGrammar
    assert localspec.LlamaCache is llama_cpp.LlamaRAMCache
    assert localspec.LLAMA_POOLING_TYPE_MEAN == llama_cpp.LLAMA_POOLING_TYPE_MEAN
    assert localspec.llama_cpp.llama_backend_init
    assert localspec.dropin.llama_print_system_info is llama_cpp.llama_print_system_info
    with pytest.raises(AttributeError, match="nonsense"):
        _ = localspec.dropin.nonsense


def test_install_puts_it_in_the_place_of_llama_cpp() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    theirs = llama_cpp.Llama
    with localspec.dropin.installed():
        localspec.dropin.install()
        from llama_cpp import Llama

        assert Llama is localspec.Llama is llama_cpp.llama.Llama
        assert llama_cpp.LlamaGrammar
    assert llama_cpp.Llama is llama_cpp.llama.Llama is theirs is not localspec.Llama


def test_a_cache_of_llama_cpp_is_accepted_and_not_used() -> None:
    pytest.importorskip("llama_cpp")
    model, cache = llama(), localspec.LlamaCache()
    with pytest.warns(UserWarning, match="caches prompts by itself"):
        model.set_cache(cache)
    assert model.cache is cache and model("hello")["choices"][0]["text"] == "hello"
    model.set_cache(None)


@pytest.mark.parametrize(
    "options",
    [
        {"lora_path": "x.gguf"},
        {"kv_overrides": {"a": 1}},
        {"rope_freq_base": 26000.0},
        {"rope_freq_scale": 0.5},
        {"tokenizer": object()},
        {"pooling_type": 0},
        {"vocab_only": True},
        {"spm_infill": True},
        {"yarn_orig_ctx": 4096},
    ],
)
def test_options_that_would_change_the_text_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))) as caught:
        llama(**options)
    assert isinstance(caught.value, UsageError) and caught.value.hint


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"draft_model": object()}, "draft_model is ignored: localspec drafts by itself"),
        ({"use_mlock": True}, "use_mlock"),
        ({"tensor_split": [1.0]}, "tensor_split"),
        ({"rope_freq_base": 10000.0}, "rope_freq_base"),
        ({"n_ctxx": 9}, "is it n_ctx?"),
    ],
)
def test_options_that_change_nothing_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.warns(UserWarning) as caught:
        localspec.Llama("fake.gguf", engine=FakeEngine(), **options)
    (warning,) = caught
    assert told in str(warning.message) and warning.filename == __file__


def test_options_that_ask_for_nothing_are_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llama(
            f16_kv=True, n_parts=-1, device=None, logits_all=True, embedding=True, verbose=False, draft_model=None,
            rope_freq_scale=1.0, lora_path=None, numa=False, type_k=1,
        )  # fmt: skip


def test_options_become_those_of_a_context() -> None:
    options = read_options({"n_batch": 8, "n_threads": 3, "type_k": 8, "type_v": "q4_0"})
    params = context_params(options)
    assert (params.n_threads, params.type_k, params.type_v) == (3, "q8_0", "q4_0")
    assert params.flash_attn and params.n_batch >= 512
    assert not context_params(read_options({"flash_attn": False})).flash_attn
    with pytest.raises(ValueError, match="type_k"):
        context_params(read_options({"type_k": 999}))


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        localspec.Llama(str(tmp_path / "none.gguf"))
    assert isinstance(caught.value, ModelNotFoundError)


def test_tokens_are_bytes_in_and_out() -> None:
    model = llama()
    assert model.tokenize("hé".encode()) == list("hé".encode())
    assert model.detokenize(model.tokenize(b"hello")) == b"hello"
    assert model.tokenizer().decode(model.tokenizer().encode("hé")) == "hé"
    with pytest.raises(ValueError, match="encode it"):
        model.tokenize("hello")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="999"):
        model.detokenize([999])


def test_facts() -> None:
    model = llama()
    assert (model.n_ctx(), model.n_vocab(), model.n_embd()) == (1024, 257, 4)
    assert (model.token_bos(), model.token_eos(), model.token_nl()) == (-1, -1, 10)
    assert model.metadata["general.architecture"] == "llama"
    assert model.context_params.n_ctx == 1024 and model.pooling_type() == localspec.LLAMA_POOLING_TYPE_MEAN


def test_embeddings() -> None:
    model = llama(n_batch=4)
    one, many = model.embed("ab"), model.embed(["ab", "c"])
    assert one == many[0] and len(many) == 2 and len(one) == 4
    assert model.embed("abcdefgh") == model.embed("abcd")
    assert model.embed(["ab", "c"], return_count=True) == (many, 3)
    with pytest.raises(ValueError, match="8 tokens"):
        model.embed("abcdefgh", truncate=False)
    made = model.create_embedding(["ab", "c"])
    assert [each["embedding"] for each in made["data"]] == many and [each["index"] for each in made["data"]] == [0, 1]
    assert made["usage"] == {"prompt_tokens": 3, "total_tokens": 3} and made["object"] == "list"


@pytest.mark.parametrize("name", ["eval", "sample", "scores", "save_state", "load_state", "ctx", "_model"])
def test_what_is_absent_says_what_to_use_instead(name: str) -> None:
    model = llama()
    assert not hasattr(model, name)
    with pytest.raises(NotImplementedError) as caught:
        getattr(model, name)
    assert isinstance(caught.value, UsageError) and caught.value.hint


def test_statics_of_llama_cpp() -> None:
    assert localspec.Llama.longest_token_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert localspec.Llama.longest_token_prefix([1, 2], [1, 2, 4]) == 2
    logprobs = localspec.Llama.logits_to_logprobs(np.array([0.0, 1.0, -np.inf]))
    assert np.isclose(np.exp(logprobs).sum(), 1.0) and logprobs[2] == -np.inf


def test_the_model_stays_as_long_as_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, closed = FakeEngine(), []
    opened = Opened(engine, Card.of_engine(engine), lambda: closed.append(True))
    monkeypatch.setattr("localspec.dropin.llama.open_engine", lambda *_: opened)
    stream = localspec.Llama("fake.gguf")("hello", stream=True)
    next(stream)
    gc.collect()
    assert not closed
    assert [chunk["choices"][0]["text"] for chunk in stream] == ["e", "l", "l", "o", ""]
    del stream
    gc.collect()
    assert closed == [True]


def test_closing_is_final_and_leaves_an_engine_that_was_given() -> None:
    with llama() as model:
        model("hello")
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model("hello")
    with pytest.raises(ValueError, match="pickled"):
        pickle.dumps(model)
