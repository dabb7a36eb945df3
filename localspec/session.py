"""A model made ready to answer: loaded, with a context, a calibrated cost curve and the speculation methods.

This is what the interfaces (command line, bench, server) share. One session serves many requests, one at a time, and
keeps the prompt cache between them. It prints nothing; progress goes to the callback that `open` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from localspec import decode, hub, machine, placement
from localspec.calibrate.curve import CostCurve
from localspec.calibrate.measure import CALIBRATION_TEXT
from localspec.calibrate.obtain import Outcome, find, measure_and_store
from localspec.calibrate.store import CurveKey
from localspec.chat import ChatTemplate, Message, chat_tokens
from localspec.decode import Limits
from localspec.engine.base import FloatArray, TreeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams, SamplingParams, check_gpu_layers
from localspec.engine.sampler import ChainSampler
from localspec.entmtp.in_use import calibrated_bank, require_bank
from localspec.entmtp.prompts import AUTO
from localspec.events import Event
from localspec.heads.choose import choose_heads
from localspec.loading import DraftRequest, Progress, SecondModel, load_models
from localspec.materials import Materials
from localspec.methods.acceptance import Acceptance
from localspec.methods.base import Method
from localspec.methods.draft.drafter import DraftDrafter, DraftModel
from localspec.methods.ptd.native import Corpus
from localspec.methods.registry import check_bank_use, default_method, make_method, uses_bank, uses_heads

Cancelled = Callable[[], bool]


class Session:
    """One model, one context, one sequence. Not safe for use from several threads at once.

    `name` is what people call the model: its name in models.txt, else that of the file. `ctx` is the tree context;
    whoever changes its sequence calls `forget` afterwards. `draft` is a second model that drafts, closed with the
    session. `calibration` tells where the curve came from, None before.
    """

    def __init__(
        self,
        model: Model,
        context: ContextParams,
        *,
        method: str = "auto",
        n_gpu_layers: int = -1,
        pool: bool = True,
        heads: Sequence[Path] = (),
        draft: SecondModel | None = None,
    ) -> None:
        self.model = model
        self.draft = draft
        self.params = context
        self.method_name = method
        self.name = hub.name_of(model.path)
        self.calibration: Outcome | None = None
        files = choose_heads(model, heads)
        #: the kind of text to come, for which trees were calibrated: chat, code, math or auto
        self.task = AUTO
        self.ctx: TreeContext = model.new_context(replace(context, hidden=context.hidden or bool(files)))
        self.materials = Materials(model, self.ctx, pool=pool, head_files=files, draft=draft)
        self._n_gpu_layers = n_gpu_layers
        self._progress: Progress | None = None
        self.generator = decode.Generator(model, self.ctx)
        self._methods: dict[tuple[str, bool, str], Method] = {}
        self._template: ChatTemplate | None = None
        self._active: Generator[Event, None, None] | None = None

    @classmethod
    def open(
        cls,
        model: str | Path | None = None,
        *,
        context: ContextParams | None = None,
        method: str | None = None,
        n_gpu_layers: int = -1,
        use_mmap: bool = True,
        pool: bool = True,
        heads: Sequence[Path] = (),
        draft: DraftRequest | None = None,
        task: str | None = None,
        progress: Progress | None = None,
    ) -> Session:
        """Find and load `model` (a name, a path, or None for the default) and make it ready for `method` (None: "draft"
        with a draft model, else "auto").

        `heads` are files of draft heads for it, at most one of a kind; see `choose_heads` for what is used without.
        `draft` is a second model that drafts for it. `task` is the bank of trees that methods of EntMTP take, None for
        "auto"; one that is missing, or that `method` does not take, is refused. The first time a model is used with a
        method that drafts, the cost curve is measured (10 s at most). Raises `ModelError`, `UsageError`, `EngineError`.
        """
        context = context or ContextParams()
        context.validate()
        check_gpu_layers(n_gpu_layers)
        machine.refuse_unfit_library()
        method = method or default_method(draft is not None)
        check_bank_use(method, task)
        loaded, second = load_models(
            model, draft, context, n_gpu_layers=n_gpu_layers, use_mmap=use_mmap, progress=progress
        )
        try:
            session = cls(
                loaded, context, method=method, n_gpu_layers=n_gpu_layers, pool=pool, heads=heads, draft=second
            )
            session.on_progress(progress)
            if task is not None:
                require_bank(session, task)
            session.task = task or AUTO
            session.method(method)
        except BaseException:
            if second is not None:
                second.close()
            loaded.close()
            raise
        return session

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End a generation that is under way, free contexts and models. Idempotent."""
        if self._active is not None:
            self._active.close()
        self.ctx.close()
        self.model.close()
        if self.draft is not None:
            self.draft.close()

    def on_progress(self, progress: Progress | None) -> None:
        """Report later measurements to `progress`."""
        self._progress = progress

    def forget(self) -> None:
        """Empty the sequence and the prompt cache."""
        self.generator.reset()

    @property
    def corpus(self) -> Corpus:
        """How language usually goes on, in this model's tokens."""
        return self.materials.corpus

    def clear_pool(self) -> None:
        """Forget what answers taught the drafter."""
        self.materials.clear_pool()

    def method(self, name: str | None = None, *, governed: bool = True) -> Method:
        """The method called `name` (None: that of the session); measures the cost curve if it needs one.

        Raises `UsageError` for an unknown name.
        """
        name = name or self.method_name
        key = name, governed, self.task if uses_bank(name) else ""
        if key not in self._methods:
            # made once before the curve exists, so that an unknown name costs no calibration
            if self.make_method(name, governed).name != "plain":
                self.calibrate()
            self._methods[key] = self.make_method(name, governed)
        return self._methods[key]

    def check(self, name: str) -> None:
        """Raise `UsageError` for a method that there cannot be here, as for want of heads. Measures nothing."""
        self.make_method(name, True)

    def make_method(self, name: str, governed: bool = True, draft: DraftModel | None = None) -> Method:
        """A fresh method for one sequence; see `method`. `draft` is the draft model in its own state for it."""
        materials = self.materials
        pool, corpus = (None, None) if name == "plain" else (materials.pool, materials.corpus)
        # in stock mode heads are NumPy, which takes several steps of the model
        usable = uses_heads(name) and (name != "auto" or self.ctx.mode == "patched")
        heads = replace(materials.heads, bank=lambda: calibrated_bank(self, self.task)) if usable else None
        return make_method(
            name,
            curve=self.curve,
            max_nodes=self.ctx.max_nodes,
            governed=governed,
            limit_reason=self.ctx.tree_limit_reason,
            eog=self.model.eog,
            pool=pool,
            corpus=corpus,
            heads=heads,
            draft=draft or materials.draft,
        )

    @property
    def curve(self) -> CostCurve | None:
        """The cost curve; None before `calibrate`, and for a context that cannot hold trees."""
        return None if self.calibration is None else self.calibration.curve

    def calibrate(self, force: bool = False) -> Outcome:
        """Get the cost curve of this model and machine: from memory, from disk, or measured now (`force`: always).

        Measuring empties the prompt cache.
        """
        if self.calibration is not None and not force:
            return self.calibration
        found = None if force else find(self.curve_key)
        self.calibration = found or self._measure()
        self._methods.clear()
        return self.calibration

    def _measure(self) -> Outcome:
        def on_progress(share: float) -> None:
            if self._progress is not None:
                self._progress("measuring this machine", share)

        text = self.model.tokenize(CALIBRATION_TEXT, add_special=True)
        try:
            return measure_and_store(self.ctx, self.curve_key, self.name, text, on_progress)
        finally:
            self.forget()

    @property
    def curve_key(self) -> CurveKey:
        """What the cost curve of this session belongs to."""
        return placement.curve_key(self.model, self.params, self.ctx.mode, self.layers_on_gpu)

    @property
    def layers_on_gpu(self) -> int:
        """Layers that run on a GPU, the output layer counted as one; 0 without a GPU."""
        return placement.layers_on_gpu(self.model, self._n_gpu_layers)

    @property
    def device(self) -> str:
        """Where the model runs, for people."""
        return placement.device_name(self.layers_on_gpu)

    @property
    def template(self) -> ChatTemplate:
        """The chat template of the model; ChatML when it has none."""
        if self._template is None:
            bos, eos = (self.model.special_text(token) for token in (self.model.bos, self.model.eos))
            self._template = ChatTemplate(self.model.chat_template, bos=bos, eos=eos)
        return self._template

    def chat_prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, ready for the assistant's answer. Raises `UsageError` (see `chat`)."""
        return chat_tokens(self.model, self.template, messages)

    def raw_prompt(self, text: str) -> list[int]:
        """The tokens of plain text, with the beginning that the model wants; special tokens are read as such."""
        return self.model.tokenize(text, add_special=True, parse_special=True)

    def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        limits: Limits | None = None,
        method: str | Method | None = None,
        cancelled: Cancelled | None = None,
        *,
        governed: bool = True,
        acceptance: Acceptance | None = None,
    ) -> Iterator[Event]:
        """Answer `prompt`, with a method of this name or with this one; the last event is a `DoneEvent`.

        Without `acceptance` drafts are verified by sample-and-match. Closing the iterator early is fine.

        Raises at once: `UsageError` for options that cannot be used, `ContextLengthError` for a prompt that does not
        fit. `EngineError` may come while iterating.
        """
        chosen = method if isinstance(method, Method) else self.method(method, governed=governed)
        sampler = ChainSampler(self.model, sampling or SamplingParams())
        try:
            chosen = (acceptance or Acceptance()).apply(chosen, sampler.params, sampler.seed, self.model.piece)
            sampler.start(list(prompt))
            if isinstance(chosen.drafter, DraftDrafter):
                chosen.drafter.cancelled = cancelled
            events = self.generator.generate(prompt, sampler, chosen, limits, cancelled or (lambda: False))
        except BaseException:
            sampler.close()
            raise
        self._active = _closing(events, sampler)
        return self._active

    def next_logits(self, tokens: Sequence[int]) -> FloatArray:
        """The logits after `tokens`, float32 [n_vocab], evaluated afresh. Empties the prompt cache."""
        self.forget()
        try:
            if len(tokens) > 1:
                self.ctx.prefill(list(tokens[:-1]))
            return self.ctx.decode([tokens[-1]], [-1]).logits(0).copy()
        finally:
            self.forget()


def _closing(events: Iterator[Event], sampler: ChainSampler) -> Generator[Event, None, None]:
    try:
        yield from events
    finally:
        sampler.close()
