"""Loading, the vocabulary, native logs and context parameters."""

from __future__ import annotations

import ctypes
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from llama_cpp import llama_cpp as L

from localspec.engine import bindings, logs, memory
from localspec.engine.model import Model
from localspec.engine.params import ContextParams, default_threads
from localspec.engine.weightless import open_weightless
from localspec.errors import EngineError, ModelError, ModelNotFoundError, UsageError
from tests.engine.conftest import MakeContext
from tests.tiny_models import N_CTX_TRAIN, N_EMBD, N_SWA, N_VOCAB, write_tiny


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf", "llama")


def test_facts_of_a_model(tiny: dict[str, Model]) -> None:
    model = tiny["gemma3"]
    assert (model.gguf_name, model.arch) == ("tiny-gemma3", "gemma3")
    assert (model.n_vocab, model.n_ctx_train, model.n_embd) == (N_VOCAB, N_CTX_TRAIN, N_EMBD)
    assert (model.n_layer, model.n_swa) == (6, N_SWA)
    assert (model.bos, model.eos, model.add_bos) == (1, 4, False)
    assert {2, 4} <= model.eog
    assert model.metadata["general.architecture"] == "gemma3"
    assert model.size_bytes > 0
    assert model.n_params > 0
    assert model.chat_template is None
    assert [tiny[kind].is_recurrent for kind in ("llama", "gemma3", "mamba")] == [False, False, True]


@pytest.mark.model
def test_facts_of_the_embedded_model(model: Model) -> None:
    assert model.chat_template is not None
    assert "<|im_start|>" in model.chat_template
    assert {model.piece(token) for token in model.eog} == {b""}
    assert model.tokenize("<|im_end|>", parse_special=True) == [model.eos]
    assert model.eos in model.eog


@pytest.mark.model
@pytest.mark.parametrize("text", ["", "plain", " two  spaces ", "Ærø, 東京, 🙂🏽", "a\0b", "<|im_end|>", "x" * 5000])
def test_text_survives_the_tokenizer(model: Model, text: str) -> None:
    assert model.text(model.tokenize(text)) == text.encode()


def test_lone_surrogate_does_not_break_the_tokenizer(tiny: dict[str, Model]) -> None:
    assert tiny["llama"].text(tiny["llama"].tokenize("a\ud800b")) == b"a?b"


def test_long_piece_is_whole(model_with_long_token: tuple[Model, int, bytes]) -> None:
    model, token, piece = model_with_long_token
    assert model.piece(token) == piece


@pytest.fixture
def model_with_long_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    long = "y" * 2000
    monkeypatch.setattr("tests.tiny_models.TOKENS", [*_tokens(), long])
    with Model.load(write_tiny(tmp_path / "long.gguf", "llama")) as model:
        yield model, len(_tokens()), long.encode()


def _tokens() -> list[str]:
    from tests import tiny_models

    return [token for token in tiny_models.TOKENS if len(token) < 100]


def test_without_layers_on_a_gpu_none_takes_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, chosen = L.llama_model_load_from_file, []

    def watch(file: bytes, params: Any) -> Any:
        # no list means every device there is; a list ends with a null pointer
        first = ctypes.c_void_p.from_address(params.devices).value if params.devices else "any"
        chosen.append((params.n_gpu_layers, first))
        return load(file, params)

    monkeypatch.setattr(L, "llama_model_load_from_file", watch)
    for n_gpu_layers in (-1, 2, 0):
        Model.load(path, n_gpu_layers=n_gpu_layers).close()
    open_weightless(path).close()
    assert chosen == [(-1, "any"), (2, "any"), (0, None), (0, None)]


def test_fingerprint_is_of_the_content(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path / "copy.gguf"))
    other = write_tiny(tmp_path / "other.gguf", "llama", seed=2)
    fingerprints = []
    for file in (path, copy, other):
        with Model.load(file) as model:
            fingerprints.append(model.fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert len(fingerprints[0]) == 16


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.gguf"):
        Model.load(tmp_path / "nowhere.gguf")


def test_truncated_file_is_an_error(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match=r"tiny\.gguf"):
        Model.load(path)


def test_reason_of_the_library_is_told(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"))
    with pytest.raises(ModelError, match=r"attn_q"):
        Model.load(path)


def test_loading_stops_when_progress_says_so(path: Path) -> None:
    shares: list[float] = []
    with Model.load(path, progress=lambda share: shares.append(share) is None):
        assert shares[-1] == 1.0
    with pytest.raises(EngineError, match="stopped"):
        Model.load(path, progress=lambda share: False)


def test_interrupt_during_loading_arrives(path: Path) -> None:
    def interrupt(share: float) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Model.load(path, progress=interrupt)


def test_loading_prints_nothing_and_logs_to_logging(
    path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "localspec.native"), Model.load(path) as model:
        model.new_context(ContextParams(n_ctx=256)).decode([10], [-1])
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert any("general.name" in record.message for record in caplog.records)
    assert max(record.levelno for record in caplog.records) < logging.WARNING


def test_log_fragments_become_lines(caplog: pytest.LogCaptureFixture) -> None:
    lines = logs._Lines()
    mark = logs.n_errors()
    with caplog.at_level(logging.DEBUG, "localspec.native"):
        lines.feed(2, "one ")
        lines.feed(5, "line\n")
        lines.feed(2, "...")
        lines.feed(5, "....\n")
        lines.feed(4, "fetch: went")
        lines.feed(5, " wrong\nand more\n")
        lines.feed(2, "unfinished")
        lines.feed(3, "advice\n")
        lines.feed(1, "every tensor\n")
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.DEBUG, "one line"),
        (logging.ERROR, "fetch: went wrong"),
        (logging.ERROR, "and more"),
        (logging.DEBUG, "unfinished"),
        (logging.INFO, "advice"),
    ]
    assert logs.reason(mark, "unknown") == "went wrong"
    assert logs.reason(logs.n_errors(), "unknown") == "unknown"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_ctx", -1),
        ("n_batch", 0),
        ("n_ubatch", 0),
        ("n_seq_max", 0),
        ("n_threads", 0),
        ("n_threads_batch", -3),
        ("n_ctx", 10**11),
        ("n_batch", 10**11),
        ("n_seq_max", 257),
        ("n_threads", 10**11),
        ("type_k", "q3"),
        ("type_v", "F16"),
        ("mode", "fast"),
    ],
)
def test_unusable_context_parameter_is_named(tiny: dict[str, Model], field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=field):
        tiny["llama"].new_context(ContextParams(**{field: value}))


def test_quantised_v_cache_needs_flash_attention(tiny: dict[str, Model], make_context: MakeContext) -> None:
    with pytest.raises(UsageError, match="type_v=q8_0"):
        tiny["llama"].new_context(ContextParams(flash_attn=False, type_v="q8_0"))
    make_context(tiny["llama"], "stock", type_k="q8_0", type_v="q8_0").decode([10, 11], [-1, 0])


def test_context_that_cannot_be_allocated_is_refused(tiny: dict[str, Model]) -> None:
    with pytest.raises(EngineError, match="n_ctx=2000000000") as caught:
        tiny["llama"].new_context(ContextParams(n_ctx=2_000_000_000))
    assert caught.value.hint


def test_more_than_the_cache_counts_as_memory(
    tiny: dict[str, Model], make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, params = tiny["llama"], ContextParams(n_ctx=512)
    cache = memory.kv_bytes_per_token(model.shape, params) * 512
    need = memory.context_bytes(model.shape, params, 512)
    assert need > cache + 256 * N_VOCAB * 4
    monkeypatch.setattr("localspec.engine.model.available_memory", lambda: need)
    make_context(model, "stock", n_ctx=512)
    monkeypatch.setattr("localspec.engine.model.available_memory", lambda: need - 1)
    with pytest.raises(EngineError, match="n_ctx=512 needs about"):
        model.new_context(params)


@pytest.mark.model
def test_the_estimate_is_near_what_the_library_takes(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    params = ContextParams(n_ctx=2048)
    with caplog.at_level(logging.DEBUG, "localspec.native"):
        model.new_context(params).close()
    sizes = re.findall(r"(?:KV|compute) buffer size = +([\d.]+) MiB", caplog.text)
    taken = sum(float(size) for size in sizes)
    assert len(sizes) >= 2
    assert taken <= memory.context_bytes(model.shape, params, 2048) / 2**20 <= 2 * taken + 50


@pytest.mark.parametrize("layers", [-2, 10**11])
def test_an_unusable_number_of_gpu_layers_is_named(path: Path, layers: int) -> None:
    with pytest.raises(UsageError, match="n_gpu_layers"):
        Model.load(path, n_gpu_layers=layers)


def test_context_length_defaults_to_the_models_up_to_a_limit(tiny: dict[str, Model], make_context: MakeContext) -> None:
    assert make_context(tiny["llama"], "stock", n_ctx=None).n_ctx == N_CTX_TRAIN
    assert ContextParams().resolve_n_ctx(1 << 20) == 8192


def test_patched_mode_is_not_silently_replaced(tiny: dict[str, Model]) -> None:
    if bindings.library() is not None:
        pytest.skip("the patches are installed")
    with pytest.raises(EngineError, match="patches"):
        tiny["llama"].new_context(ContextParams(mode="patched"))


def test_closing_a_model_closes_its_contexts(path: Path) -> None:
    model = Model.load(path)
    context = model.new_context(ContextParams(n_ctx=256))
    model.close()
    model.close()
    with pytest.raises(EngineError, match="closed"):
        context.decode([10], [-1])


def test_default_threads_fit_the_machine() -> None:
    assert 1 <= default_threads() <= 4096
    assert ContextParams(n_threads=3).resolve_threads() == (3, 3)
    assert ContextParams(n_threads=3, n_threads_batch=5).resolve_threads() == (3, 5)
