"""Drafting with a second model of llama.cpp: the text is that of plain decoding, and the draft's cache is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec import hub
from localspec.calibrate.store import save_curve
from localspec.decode import Limits
from localspec.engine import bindings
from localspec.engine.model import Model
from localspec.engine.params import ContextParams, SamplingParams
from localspec.errors import ModelError, ModelNotFoundError, UsageError
from localspec.events import DoneEvent, StepEvent
from localspec.loading import DraftRequest
from localspec.methods.draft.cache import DraftCache
from localspec.methods.draft.drafter import DraftDrafter, DraftModel
from localspec.session import Session
from tests.methods.draft.steps import follow
from tests.tiny_models import write_tiny
from tests.with_model import FLAT, smollm

PROMPT = "the tree and the node and the token of the tree and the node and"


@pytest.fixture(params=["stock", "patched"])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == "patched" and bindings.library() is None:
        pytest.skip("llama-cpp-python is not patched: pip install ./ggml_patches")
    return str(request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, drafts that are the same model and another one, and one that cannot draft."""
    folder = tmp_path_factory.mktemp("models")
    made = {name: write_tiny(folder / f"{name}.gguf", seed=seed) for name, seed in (("target", 2), ("other", 1))}
    return {**made, "gemma3": write_tiny(folder / "gemma3.gguf", "gemma3"),
            "mamba": write_tiny(folder / "mamba.gguf", "mamba")}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def opened(files: dict[str, Path], draft: str, mode: Any, **more: Any) -> Session:
    context = ContextParams(n_ctx=512, n_threads=1, mode=mode)
    with Session.open(files["target"], context=context, method="plain") as session:
        save_curve(session.curve_key, FLAT, "tiny")
    return Session.open(files["target"], context=context, draft=DraftRequest(files[draft]), **more)


def answer(session: Session, method: str, seed: int | None = None, n: int = 60) -> tuple[list[int], DoneEvent]:
    sampling = SamplingParams(temperature=0.0 if seed is None else 1.0, seed=seed or 1)
    prompt = session.raw_prompt(PROMPT)
    tokens: list[int] = []
    for event in session.generate(prompt, sampling, Limits(n), method, governed=False):
        if isinstance(event, StepEvent):
            tokens += event.tokens
        elif isinstance(event, DoneEvent):
            return tokens, event
    raise AssertionError("a generation ends with a DoneEvent")


@pytest.mark.parametrize("draft", ["target", "other", "gemma3"])
def test_the_text_is_that_of_plain_decoding(files: dict[str, Path], home: Path, mode: str, draft: str) -> None:
    with opened(files, draft, mode) as session:
        assert session.method_name == "draft", "what a draft model is given for"
        for seed in (None, 7):
            plain, _ = answer(session, "plain", seed)
            tokens, done = answer(session, "draft", seed)
            assert tokens == plain
            assert done.lossless and done.stats.n_drafted > 40
            if draft == "target" and seed is None:
                assert done.stats.n_accepted > 40


@pytest.mark.skipif(bindings.library() is None, reason="exact on the patched library")
def test_a_model_that_drafts_for_itself_is_always_right(files: dict[str, Path], home: Path) -> None:
    """After every partial step as well: else its cache would differ from the text."""
    with opened(files, "target", "patched") as session:
        _, done = answer(session, "draft-chain", n=64)
        assert done.stats.n_steps == 4
        rates = [taken / steps for steps, taken in zip(done.stats.steps_reaching, done.stats.accepted_at, strict=True)]
        assert rates == [1.0] * 15


@pytest.mark.parametrize("kind", ["other", "gemma3"])
def test_after_any_acceptance_drafts_are_those_of_a_fresh_context(files: dict[str, Path], mode: Any, kind: str) -> None:
    """Lengths and wrong tokens by chance, over several prompts; with and without guesses the chains are the same."""
    rng = np.random.default_rng(1)
    params = ContextParams(n_ctx=512, n_threads=1, mode=mode)
    with Model.load(files[kind]) as model:
        caches = [DraftCache(model.new_context(params)) for _ in range(3)]
        models = [DraftModel(cache, model.n_vocab, model.eog) for cache in caches]
        drafters = [DraftDrafter(models[0]), DraftDrafter(models[1], guessing=False)]
        text = model.tokenize(PROMPT)
        for _ in range(3):
            text = text[: int(rng.integers(5, len(text)))] + model.tokenize(PROMPT)[3:]
            for drafter in drafters:
                drafter.start(text)
            for _ in range(8):
                fresh = DraftDrafter(models[2], guessing=False)
                caches[2].reset()
                fresh.start(text)
                expected = fresh.propose(8).tokens
                trees = [drafter.propose(8) for drafter in drafters]
                assert [tree.tokens for tree in trees] == [expected] * 2
                n, bonus = int(rng.integers(0, len(expected))), int(rng.integers(6, 200))
                for drafter, tree in zip(drafters, trees, strict=True):
                    tokens = follow(drafter, tree, n, bonus)
                text += tokens


def test_a_draft_that_cannot_step_back_is_refused(files: dict[str, Path], home: Path) -> None:
    with pytest.raises(ModelError, match="mamba"):
        opened(files, "mamba", "auto")


def test_a_pair_that_does_not_fit_is_refused_before_weights_are_loaded(
    files: dict[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any, **__: Any) -> Model:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(Model, "load", load)
    with pytest.raises(ModelError, match="mamba"):
        Session.open(files["target"], context=ContextParams(n_ctx=256), draft=DraftRequest(files["mamba"]))


def test_a_small_draft_context_stops_drafting_where_it_ends(files: dict[str, Path], home: Path) -> None:
    context = ContextParams(n_ctx=1024, n_threads=1)
    draft = DraftRequest(files["target"], n_ctx=256)
    with Session.open(files["target"], context=context, draft=draft, method="plain") as session:
        save_curve(session.curve_key, FLAT, "tiny")
        plain, _ = answer(session, "plain", n=400)
        tokens, done = answer(session, "draft", n=400)
        assert tokens == plain
        assert 100 < done.stats.n_drafted < 256, "drafts until the context of the draft model was full"


def test_without_a_draft_model_the_method_names_the_option(files: dict[str, Path], home: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Session.open(files["target"], context=ContextParams(n_ctx=256, n_threads=1), method="draft")
    assert "--draft" in (caught.value.hint or "")


@pytest.fixture(params=["smollm2", "qwen"])
def real_pair(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Target and draft. SmolLM2 drafts for itself: there is no smaller one."""
    if request.param == "smollm2":
        return smollm(), smollm()
    try:
        return hub.find_model("qwen2.5-coder-1.5b-instruct"), hub.find_model("qwen2.5-coder-0.5b-instruct")
    except ModelNotFoundError:
        pytest.skip("the Qwen models are not here: localspec pull")


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.skipif(bindings.library() is None, reason="exact on the patched library; see the README for the stock one")
@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0), SamplingParams(seed=3)], ids=["greedy", "seeded"])
def test_real_text_is_that_of_plain_decoding(
    real_pair: tuple[Path, Path], home: Path, sampling: SamplingParams
) -> None:
    """In a draft context that the text outgrows. Drafts are verified whether they pay or not."""
    target, draft = real_pair  # found before `home` hides where models are kept
    context = ContextParams(n_ctx=1024, n_threads=1)
    with Session.open(target, context=context, method="plain") as session:
        save_curve(session.curve_key, FLAT, target.name)
    with Session.open(target, context=context, draft=DraftRequest(draft, n_ctx=256)) as session:
        prompt = session.chat_prompt([{"role": "user", "content": "Write a class for a binary tree, with comments."}])
        texts, accepted = [], 0
        for method in ("plain", "draft"):
            tokens: list[int] = []
            for event in session.generate(prompt, sampling, Limits(260), method, governed=False):
                if isinstance(event, StepEvent):
                    tokens += event.tokens
                elif isinstance(event, DoneEvent):
                    accepted = event.stats.n_accepted
            texts.append(tokens)
    assert texts[0] == texts[1] and accepted > 60
