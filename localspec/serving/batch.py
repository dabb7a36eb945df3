"""Several texts at once: which slot takes a request, and one forward pass for the trees of all that write.

A turn is a pass for those that write, then a piece of the prompt of one that reads. So nobody who writes waits longer
than a piece takes, and whoever came first is read first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from localspec.engine.part_rows import PartRows
from localspec.errors import EngineError, LocalspecError
from localspec.events import Event, StepEvent
from localspec.methods.company import CompanyGovernor, SharedCost
from localspec.methods.registry import MAX_TREE_NODES
from localspec.reading import common_prefix
from localspec.serving.answer import Answer, TimedOutError
from localspec.serving.pieces import Pieces
from localspec.serving.queue import FairQueue
from localspec.serving.slot import Slot
from localspec.session import Session
from localspec.tree import Tree

log = logging.getLogger(__name__)

#: tokens of a prompt that are read between two passes of those that write, and while nobody writes
PIECE, PIECE_ALONE = 128, 512
#: tokens of a common beginning that are worth copying from another slot
LEAST_COPY = 16

#: called with each event of a slot; the slot is that of the event
Watch = Callable[[Slot, Event], None]


class Batch:
    """The slots of a session. `turn` does a little of all there is to do; it is for the engine's thread alone."""

    def __init__(self, session: Session, queue: FairQueue, pieces: Pieces, watch: Watch) -> None:
        self._session = session
        self._queue = queue
        self._watch = watch
        self._shared = SharedCost(session.curve, min(session.ctx.max_nodes, MAX_TREE_NODES))
        self.slots = [Slot(session, seq, self._shared, pieces) for seq in range(session.ctx.n_seq_max)]
        self._company = CompanyGovernor()
        self._can_copy = True
        self._turn = 0

    @property
    def n_free(self) -> int:
        """Slots that serve nobody; from any thread."""
        return sum(not slot.state.busy for slot in self.slots)

    def turn(self) -> bool:
        """Take requests on, make one pass, read one piece; False when there was nothing to do."""
        self._drop_unwanted()
        self._admit()
        writing = [slot for slot in self.slots if slot.writing]
        if writing:
            self._pass(writing)
        reading = [slot for slot in self.slots if slot.reading]
        if reading:
            slot = min(reading, key=lambda slot: slot.used)
            self._guard(slot, lambda: self._read(slot, PIECE if writing else PIECE_ALONE))
        return bool(writing or reading)

    def _drop_unwanted(self) -> None:
        for answer in self._queue.remove_unwanted():
            answer.put(_late(answer) if answer.late else EngineError("the request was cancelled while it waited"))
        for slot in self.slots:
            served = slot.answer
            if served is not None and served.cancelled:
                self._watch(slot, slot.stop())
            elif served is not None and served.late:
                slot.fail(_late(served))

    def _admit(self) -> None:
        while any(not slot.busy for slot in self.slots):
            answer = self._queue.pop()
            if answer is None:
                return
            slot = self._choose(answer)
            self._guard(slot, lambda slot=slot, answer=answer: slot.begin(answer))  # type: ignore[misc]
            if not slot.busy and not answer.ended:
                answer.put(EngineError("the request could not be begun", "the log has more"))

    def _choose(self, answer: Answer) -> Slot:
        """The free slot that has most of the prompt in its cache, or that was not used for longest, made to begin as
        some other slot does where that is better."""
        free = [slot for slot in self.slots if not slot.busy]
        body = answer.request.prompt[:-1]
        common = {slot: common_prefix(slot.generator.chain, body) for slot in self.slots}
        best = max(free, key=lambda slot: (common[slot], -slot.used))
        # a cache of which this prompt would throw most away stays for who comes back to it, if others are unused
        if 2 * common[best] >= len(best.generator.chain) and common[best]:
            slot = best
        else:
            slot = min(free, key=lambda slot: (bool(slot.generator.chain), slot.used))
        if answer.request.cache_prompt and self._can_copy:
            source = max(self.slots, key=common.__getitem__)
            if common[source] >= common[slot] + LEAST_COPY:
                self._copy(source, slot, common[source])
        return slot

    def _copy(self, source: Slot, slot: Slot, n: int) -> None:
        """Have `slot` begin as `source` does. What cannot be copied once, as on a GPU, is not tried again: the slot's
        own cache is lost by it."""
        try:
            self._can_copy = slot.generator.copy(source.generator, n)
        except LocalspecError as error:
            log.warning("slot %d reads its prompt itself: %s", slot.seq, error)

    def _read(self, slot: Slot, most: int) -> None:
        event = slot.read(most)
        if event is not None:
            self._watch(slot, event)

    def _pass(self, writing: Sequence[Slot]) -> None:
        """One forward pass for the next trees of all these slots."""
        began = perf_counter()
        shared = self._shared
        shared.n_texts = len(writing) if self._session.ctx.one_pass else 1
        plain_pass = shared.plain_pass
        trees = self._propose(writing, MAX_TREE_NODES if self._may_draft(len(writing)) else 0)
        if not trees:
            return
        if not self._session.ctx.one_pass:
            for slot, (tree, proposing) in trees.items():
                self._guard(slot, lambda slot=slot, tree=tree, t=proposing: self._step(slot, tree, t))  # type: ignore[misc]
            return
        n_nodes = sum(len(tree) for tree, _ in trees.values())
        start = perf_counter()
        try:
            rows = self._session.ctx.decode_many(
                [(tree.tokens, tree.topology.parents, slot.seq) for slot, (tree, _) in trees.items()]
            )
        except LocalspecError as error:
            for slot in trees:
                slot.fail(error)
            return
        decoding = perf_counter() - start
        if shared.n_texts > 1:
            shared.observe(n_nodes, decoding)
        at, n_written = 0, {}
        for slot, (tree, proposing) in trees.items():
            part = PartRows(rows, at, len(tree)) if len(trees) > 1 else rows
            at += len(tree)
            events: list[Event] = []
            self._guard(slot, lambda: events.extend(slot.take(tree, part, proposing, decoding)))  # noqa: B023
            n_written[slot] = sum(len(event.tokens) for event in events if isinstance(event, StepEvent))
            for event in events:
                self._watch(slot, event)
        seconds = perf_counter() - began
        for slot, n in n_written.items():
            slot.weigh(n, seconds, plain_pass)
        if len(trees) > 1:
            self._company.observe(len(trees), sum(n_written.values()), n_nodes, seconds)

    def _may_draft(self, n_texts: int) -> bool:
        return n_texts == 1 or not self._session.ctx.one_pass or self._company.may_draft(n_texts)

    def _propose(self, writing: Sequence[Slot], most: int) -> dict[Slot, tuple[Tree, float]]:
        """A tree for each slot, which sees what those before it took of the pass; the first is another every time.

        They have `most` nodes in all, or one each.
        """
        self._turn += 1
        first = self._turn % len(writing)
        trees: dict[Slot, tuple[Tree, float]] = {}
        n_nodes, waiting = 0, len(writing)
        for slot in (*writing[first:], *writing[:first]):
            waiting -= 1
            self._shared.n_others = n_nodes + waiting
            proposed: list[tuple[Tree, float] | None] = []
            room = max(1, most - self._shared.n_others)
            self._guard(slot, lambda: proposed.append(slot.propose(room)))  # noqa: B023
            if proposed and proposed[0] is not None:
                trees[slot] = proposed[0]
                n_nodes += len(proposed[0][0])
        return trees

    def _step(self, slot: Slot, tree: Tree, proposing: float) -> None:
        """A pass for one slot, where there can be none for several."""
        start = perf_counter()
        rows = self._session.ctx.decode(tree.tokens, tree.topology.parents, slot.seq)
        for event in slot.take(tree, rows, proposing, perf_counter() - start):
            self._watch(slot, event)

    def _guard(self, slot: Slot, work: Callable[[], object]) -> None:
        """Do what one slot needs; whatever happens there is no matter of the others."""
        try:
            work()
        except Exception as error:
            if not isinstance(error, LocalspecError):
                log.exception("slot %d failed", slot.seq)
                error = EngineError(f"{type(error).__name__}: {error}", "the log has more")
            if slot.busy:
                slot.fail(error)

    def end(self, error: LocalspecError) -> None:
        """End everything with an error."""
        for slot in self.slots:
            if slot.busy:
                slot.fail(error)
        while (answer := self._queue.pop()) is not None:
            answer.put(error)


def _late(answer: Answer) -> TimedOutError:
    return TimedOutError(f"the request took longer than its {answer.request.timeout:g} s", "raise --timeout")
