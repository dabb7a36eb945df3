"""A slot: one sequence of a context, which serves one request after the other and keeps its cache between them."""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import cast, get_args

from localspec.decode import Generator
from localspec.engine.base import Rows
from localspec.engine.sampler import ChainSampler
from localspec.errors import EngineError, LocalspecError, UsageError
from localspec.events import OFF, DoneEvent, Event, NoteEvent, StepEvent
from localspec.job import Job, Limits
from localspec.methods.acceptance import Accept, Acceptance
from localspec.methods.company import SharedCost
from localspec.methods.draft.drafter import DraftDrafter
from localspec.serving.answer import Answer
from localspec.serving.api import Begun, Ended, SlotState, Speculation, TokenLogprob, Written
from localspec.serving.ledger import Ledger
from localspec.serving.methods import SlotMethods
from localspec.serving.pieces import Pieces
from localspec.session import Session
from localspec.tree import Tree


class _Work:
    """What a slot is busy with."""

    def __init__(self, answer: Answer, job: Job, sampler: ChainSampler, ledger: Ledger) -> None:
        self.answer, self.job, self.sampler, self.ledger = answer, job, sampler, ledger
        self.reading = True
        self.began = 0.0
        self.note = ""
        #: seconds that its passes took, and would have taken without drafts for the same tokens
        self.spent = self.plain = 0.0
        #: of the last step: text, tokens, log-probabilities, which leave with the end
        self.rest: tuple[str, tuple[int, ...], tuple[TokenLogprob, ...]] = ("", (), ())


def _accept(name: str) -> Accept:
    for known in get_args(Accept):
        if name == known:
            return cast(Accept, known)
    raise UsageError(f"there is no rule {name!r} to accept drafts by", ", ".join(get_args(Accept)))


class Slot:
    """Sequence `seq` of a session. `begin`, then `read` until it writes, then `propose` and `take` until it is free.

    Of the engine's thread alone, but for `state`.
    """

    def __init__(self, session: Session, seq: int, shared: SharedCost, pieces: Pieces) -> None:
        self.seq = seq
        self.generator = session.generator if seq == 0 else Generator(session.model, session.ctx, seq)
        #: when it was used last, for who takes the slot that is not missed
        self.used = 0.0
        self._session, self._shared, self._pieces = session, shared, pieces
        self._methods = SlotMethods(session, shared, seq)
        self._work: _Work | None = None
        self._state = SlotState(seq, session.ctx.n_ctx, False, None, session.method_name, 0, 0, 0, 0, None, None)

    @property
    def busy(self) -> bool:
        """Whether it serves a request."""
        return self._work is not None

    @property
    def reading(self) -> bool:
        """Whether it reads a prompt."""
        return self._work is not None and self._work.reading

    @property
    def writing(self) -> bool:
        """Whether it writes an answer."""
        return self._work is not None and not self._work.reading

    @property
    def answer(self) -> Answer | None:
        """The request that it serves."""
        return None if self._work is None else self._work.answer

    @property
    def state(self) -> SlotState:
        """What people see of it; from any thread."""
        return self._state

    def begin(self, answer: Answer) -> None:
        """Take a request on. One that cannot be served is told so, and leaves the slot free."""
        request = answer.request
        answer.slot = self.seq
        self.used = monotonic()
        sampler: ChainSampler | None = None
        try:
            method = self._methods.get(request.method)
            sampler = ChainSampler(self._session.model, self._pieces.sampling(request))
            accept = _accept(request.accept or "strict")
            method = Acceptance(accept).apply(method, sampler.params, sampler.seed, self._session.model.piece)
            sampler.start(list(request.prompt))
            if isinstance(method.drafter, DraftDrafter):
                method.drafter.cancelled = lambda: answer.cancelled
            if not request.cache_prompt:
                self.generator.reset()
            piece = self._pieces.of(request)
            job = self.generator.begin(
                request.prompt,
                sampler,
                method,
                Limits(request.max_tokens or None, request.stops),
                lambda: answer.cancelled,
                piece=piece,
                top_logprobs=request.top_logprobs,
            )
        except LocalspecError as error:
            if sampler is not None:
                sampler.close()
            answer.put(error)
            return
        self._work = _Work(answer, job, sampler, Ledger(piece))
        self._show()

    def read(self, most: int) -> Event | None:
        """Read up to `most` tokens of the prompt; the event is that the prompt was read."""
        work = self._at_work()
        job = work.job
        try:
            if not self.generator.read(job, most):
                self._show()
                return None
        except LocalspecError as error:
            self.fail(error)
            return None
        work.reading = False
        work.began = perf_counter()
        if job.reason is None:
            stats = job.stats
            work.answer.put(Begun(stats.n_prompt, stats.n_cached, stats.prompt_seconds))
            if work.answer.request.max_tokens == 0:
                job.reason = "length"
        event = self.generator.prompt_event(job)
        if job.reason is not None:
            self._finish()
        else:
            self._show()
        return event

    def propose(self, room: int) -> tuple[Tree, float] | None:
        """The tree of the next pass, of at most `room` nodes, and the seconds that drafting took; None when that
        failed."""
        work = self._at_work()
        start = perf_counter()
        try:
            return self.generator.propose(work.job, room), perf_counter() - start
        except LocalspecError as error:
            self.fail(error)
            return None

    def take(self, tree: Tree, rows: Rows, proposing: float, decoding: float) -> list[Event]:
        """Verify the decoded tree; returns the events of the step."""
        work = self._at_work()
        job, answer = work.job, work.answer
        try:
            step, note = self.generator.take(job, tree, rows, proposing, decoding)
        except LocalspecError as error:
            self.fail(error)
            return []
        events: list[Event] = [step]
        if note:
            work.note = note
            events.append(NoteEvent(note))
        self._tell(work, step)
        if job.reason is None and answer.cancelled:
            job.reason = "cancelled"
        if job.reason is not None:
            events.append(self._finish())
        else:
            self._show()
        return events

    def weigh(self, n_tokens: int, seconds: float, plain_pass: float | None) -> None:
        """A pass that wrote `n_tokens` here took `seconds` in all, and would have taken `plain_pass` without drafts."""
        work = self._work
        if work is not None and plain_pass is not None:
            work.spent += seconds
            work.plain += n_tokens * plain_pass

    def _tell(self, work: _Work, step: StepEvent) -> None:
        job, likely = work.job, step.likely
        for i, token in enumerate(step.tokens):
            if token in self._session.model.eog:
                continue
            logprob = None
            if likely:
                top = tuple((other, self._pieces.shown(other), p) for other, p in likely[i].top)
                logprob = TokenLogprob(token, self._pieces.shown(token), likely[i].logprob, top)
            work.ledger.add(token, logprob)
        tokens, logprobs = work.ledger.tell(step.text)
        if job.reason is None and (step.text or tokens):
            work.answer.put(Written(step.text, tokens, logprobs))
        elif job.reason is not None:
            work.rest = step.text, tokens, logprobs

    def _finish(self) -> DoneEvent:
        """The end of the answer, for the reason that its job has."""
        work = self._at_work()
        job = work.job
        done = self.generator.end(job)
        text, tokens, logprobs = work.rest
        more = work.ledger.tell(done.text, last=True)
        if text or done.text or tokens or more[0]:
            work.answer.put(Written(text + done.text, tokens + more[0], logprobs + more[1]))
        stats = done.stats
        if work.began:
            stats.seconds = max(stats.seconds, perf_counter() - work.began)
        request = work.answer.request
        eog = done.reason == "stop" and done.stop is None
        truncated = done.reason == "length" and request.max_tokens != stats.n_tokens and request.max_tokens != 0
        report = self._report(work, done)
        self._free(work)
        work.answer.put(Ended(done.reason, done.stop, eog, truncated, stats, report, work.sampler.seed))
        return done

    def _report(self, work: _Work, done: DoneEvent) -> Speculation:
        stats, name = done.stats, work.job.method.name
        reason = None
        if name == "plain":
            asked = work.answer.request.method or self._session.method_name
            limit = self._session.ctx.tree_limit_reason
            reason = "plain decoding was asked for" if asked == "plain" or limit is None else limit
        elif work.note.startswith(OFF):
            reason = work.note.removeprefix(OFF)
        elif not stats.n_drafted:
            reason = "no draft was worth verifying"
        return Speculation(
            method=name,
            lossless=done.lossless,
            reason=reason,
            drafted=stats.n_drafted,
            accepted=stats.n_accepted,
            forgiven=stats.n_forgiven,
            tokens_per_step=stats.tokens_per_step,
            speedup=work.plain / work.spent if work.spent and name != "plain" else None,
        )

    def fail(self, error: LocalspecError) -> None:
        """End the request under way with an error; the slot is free."""
        work = self._at_work()
        self.generator.recover()
        self._free(work)
        work.answer.put(error)

    def stop(self) -> DoneEvent:
        """End the request under way as cancelled."""
        work = self._at_work()
        work.job.reason = "cancelled"
        return self._finish()

    def _free(self, work: _Work) -> None:
        self._work = None
        self.used = monotonic()
        work.sampler.close()
        self._show(work)

    def _at_work(self) -> _Work:
        if self._work is None:
            raise EngineError(f"slot {self.seq} is not at work")
        return self._work

    def _show(self, last: _Work | None = None) -> None:
        work = self._work or last
        if work is None:
            return
        job, request = work.job, work.answer.request
        stats = job.stats
        left = None if request.max_tokens is None else max(0, request.max_tokens - stats.n_tokens)
        self._state = SlotState(
            id=self.seq,
            n_ctx=self._session.ctx.n_ctx,
            busy=last is None,
            task=work.answer.id,
            method=job.method.name,
            n_prompt=len(job.prompt),
            n_read=stats.n_cached + job.n_read if work.reading else len(job.prompt),
            n_cached=stats.n_cached,
            n_decoded=stats.n_tokens,
            n_left=left,
            params=request,
        )
