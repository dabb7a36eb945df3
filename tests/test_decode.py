"""The loop: exact ends, an honest cache after everything that can happen, and the same text whatever is drafted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decode import Generator, Limits
from localspec.errors import ContextLengthError, EngineError, UsageError
from localspec.events import Choice, NoteEvent, PromptEvent, StepEvent
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.lookup import LookupDrafter
from localspec.methods.plain import PlainDrafter
from localspec.methods.registry import make_method
from localspec.methods.strict import StrictVerifier
from localspec.tree import Tree
from tests.toy import (
    EOG,
    Scripted,
    ToyContext,
    ToySampler,
    ToyVocab,
    chain_drafter,
    collect,
    method_of,
    random_drafter,
)

PROMPT = [5, 9, 3, 5, 9]


def plain() -> Method:
    return make_method("plain", curve=None, max_nodes=64)


def lookup(n: int = 16) -> Method:
    return Method("lookup", LookupDrafter(), Fixed(n), StrictVerifier())


def run(
    method: Method,
    prompt: list[int] = PROMPT,
    limits: Limits | None = None,
    sampler: ToySampler | None = None,
    ctx: ToyContext | None = None,
    vocab: ToyVocab | None = None,
) -> tuple[list[int], str, str]:
    """Generate on a fresh toy, checking the cache after every event."""
    ctx = ctx or ToyContext()
    generator = Generator(vocab or ToyVocab(), ctx)
    events = []
    emitted: list[int] = []
    for event in generator.generate(prompt, sampler or ToySampler(), method, limits or Limits(60)):
        events.append(event)
        if isinstance(event, StepEvent):
            emitted += event.tokens
        assert generator.chain == ctx.chain == (prompt + emitted)[: len(prompt) + len(emitted) - 1]
    tokens, text, done = collect(events)
    assert done.stats.n_tokens == len(tokens)
    return tokens, text, done.reason


def continuation(n: int = 80, prompt: list[int] = PROMPT, **kwargs: object) -> list[int]:
    """Prompt and greedy text of a plain run."""
    return prompt + run(plain(), prompt, Limits(n), ctx=ToyContext(**kwargs))[0]  # type: ignore[arg-type]


def test_a_step_tells_how_the_scheduler_saw_it() -> None:
    seen = []

    class Watched(Fixed):
        def choice(self) -> Choice:
            return Choice(on=True, plain_seconds=0.01, tree=len(seen), n_trees=99)

    method = Method("lookup", LookupDrafter(), Watched(16), StrictVerifier())
    for event in Generator(ToyVocab(), ToyContext()).generate(PROMPT, ToySampler(), method, Limits(20)):
        if isinstance(event, StepEvent):
            assert event.choice.tree == len(seen)
            seen.append(event)
    assert len(seen) > 1


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    prompt=st.lists(st.integers(1, 31), min_size=1, max_size=20),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    penalty=st.sampled_from([0.0, 2.0]),
    size=st.integers(2, 24),
    n_ctx=st.sampled_from([24, 40, 128]),
    stops=st.lists(st.sampled_from(["ab", "b", "the", "😀", "p.", "ก"]), max_size=2, unique=True),
    eog_bias=st.sampled_from([-100.0, -2.0]),
)
def test_same_seed_gives_the_same_text_and_end_whatever_is_drafted(
    seed: int,
    prompt: list[int],
    temperature: float,
    penalty: float,
    size: int,
    n_ctx: int,
    stops: list[str],
    eog_bias: float,
) -> None:
    def outcome(method: Method) -> tuple[list[int], str, str]:
        sampler = ToySampler(temperature, seed, penalty)
        return run(method, prompt, Limits(60, tuple(stops)), sampler, ToyContext(n_ctx, eog_bias=eog_bias))

    expected = outcome(plain())
    known = prompt + expected[0] + [1, 2, 3]
    governed = make_method("auto", curve=None, max_nodes=size)
    for method in (lookup(size), method_of(random_drafter(seed, known), size), governed):
        assert outcome(method) == expected


def test_one_draw_of_the_sampler_for_each_emitted_token() -> None:
    known = continuation()
    sampler = ToySampler()
    tokens, _, _ = run(method_of(random_drafter(1, known)), sampler=sampler)
    assert sampler.history == tokens
    assert sampler.n_draws == len(tokens)


def test_good_drafts_save_steps_and_are_counted_by_depth() -> None:
    known = continuation(200)
    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    tokens, _, done = collect(generator.generate(PROMPT, ToySampler(), method_of(chain_drafter(known, 4)), Limits(50)))
    assert tokens == known[5:55]
    stats = done.stats
    assert stats.n_steps == 10 and ctx.n_decodes == 10
    assert stats.n_drafted == stats.n_accepted == 40
    assert stats.steps_reaching == stats.accepted_at == [10, 10, 10, 10]
    assert stats.tokens_per_step == 5
    assert stats.native_seconds == pytest.approx(10e-3)


def test_a_wrong_draft_is_counted_where_it_failed() -> None:
    known = continuation(200)
    wrong = [*known[:7], (known[7] + 1) % 32, *known[8:]]
    method = method_of(chain_drafter(wrong, 4))
    steps = list(Generator(ToyVocab(), ToyContext()).generate(PROMPT, ToySampler(), method, Limits(3)))
    first = steps[1]
    assert isinstance(first, StepEvent)
    # Two nodes were right, the third was not; its replacement came as the bonus. The limit cut the tree to depth 2.
    assert first.path == (1, 2) and list(first.tokens) == known[5:8]
    stats = steps[-1].stats  # type: ignore[union-attr]
    assert (stats.n_drafted, stats.steps_reaching, stats.accepted_at) == (2, [1, 1], [1, 1])


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9])
def test_max_tokens_is_exact_inside_an_accepted_run(n: int) -> None:
    known = continuation()
    tokens, _, reason = run(method_of(chain_drafter(known, 6)), limits=Limits(n))
    assert (tokens, reason) == (known[5 : 5 + n], "length")


@pytest.mark.parametrize("method", ["plain", "lookup", "chain"])
def test_generation_up_to_the_end_of_the_context_ends_with_length(method: str) -> None:
    prompt = [7] * 56
    known = continuation(8, prompt, n_ctx=64)
    methods = {"plain": plain(), "lookup": lookup(), "chain": method_of(chain_drafter(known + known, 8))}
    tokens, _, reason = run(methods[method], prompt, Limits(None), ctx=ToyContext(64))
    assert (len(tokens), reason) == (8, "length")
    assert tokens == known[56:]


def test_an_end_token_inside_an_accepted_draft_ends_the_text_there() -> None:
    known = continuation()
    force = {tuple(known[:8]): EOG}
    drafted = [*known[:8], EOG, *known[9:]]
    ctx = ToyContext(force=force)
    tokens, text, reason = run(method_of(chain_drafter(drafted, 8)), ctx=ctx)
    assert (tokens, reason) == ([*known[5:8], EOG], "stop")
    assert ctx.n_decodes == 1
    assert (tokens, text, reason) == run(plain(), ctx=ToyContext(force=force))


def test_a_stop_string_inside_an_accepted_draft_leaves_nothing_behind_it() -> None:
    pieces = [b"", *[f"<{i}>".encode() for i in range(1, 32)]]
    known = continuation()
    stop = f"{known[7]}>"
    ctx = ToyContext()
    vocab = ToyVocab(pieces=pieces)
    tokens, text, reason = run(method_of(chain_drafter(known, 8)), limits=Limits(60, (stop,)), ctx=ctx, vocab=vocab)
    assert tokens == known[5:8]
    assert text == f"<{known[5]}><{known[6]}><"
    assert reason == "stop"
    assert ctx.chain == known[:7]


def test_a_stop_string_split_over_tokens_and_steps_leaks_no_prefix() -> None:
    pieces = [b"", *[f"<{i}>".encode() for i in range(1, 32)]]
    known = continuation()
    stop = f">{pieces[known[6]].decode()}<"
    for method in (plain(), method_of(chain_drafter(known, 1)), method_of(chain_drafter(known, 8))):
        events = list(
            Generator(ToyVocab(pieces=pieces), ToyContext()).generate(PROMPT, ToySampler(), method, Limits(60, (stop,)))
        )
        tokens, text, done = collect(events)
        assert text == f"<{known[5]}"
        assert (tokens, done.reason, done.stop) == (known[5:8], "stop", stop)


def test_stop_wins_over_the_limit_at_the_same_token() -> None:
    known = continuation()
    pieces = [b"", *[f"<{i}>".encode() for i in range(1, 32)]]
    limits = Limits(3, (f"<{known[7]}>",))
    assert run(plain(), limits=limits, vocab=ToyVocab(pieces=pieces))[2] == "stop"


def test_streamed_deltas_are_whole_characters() -> None:
    pieces = [b"", *["😀กé👩‍👧".encode()[i : i + 2] for i in range(0, 31)]]
    pieces = [piece or b"\xf0\x9f" for piece in pieces]
    vocab = ToyVocab(pieces=pieces)
    known = continuation()
    events = list(Generator(vocab, ToyContext()).generate(PROMPT, ToySampler(), method_of(chain_drafter(known, 3))))
    tokens, text, _ = collect(events)
    assert text == b"".join(map(vocab.piece, tokens)).decode("utf-8", "replace")


def test_an_unfinished_character_at_the_end_arrives_with_the_end() -> None:
    known = continuation(1)
    pieces = [b"x"] * 32
    pieces[known[5]] = b"a\xf0\x9f"
    events = list(Generator(ToyVocab(pieces=pieces), ToyContext()).generate(PROMPT, ToySampler(), plain(), Limits(1)))
    assert [event.text for event in events if not isinstance(event, PromptEvent)] == ["a", "\ufffd"]  # type: ignore[union-attr]


@pytest.mark.parametrize("governed", [False, True])
def test_drafting_goes_on_in_the_third_request(monkeypatch: pytest.MonkeyPatch, governed: bool) -> None:
    ctx = ToyContext(1024)
    monkeypatch.setattr("localspec.decode.perf_counter", lambda: ctx.native_seconds)  # every step takes 1 ms
    generator = Generator(ToyVocab(), ctx)
    method = make_method("auto", curve=None, max_nodes=16, governed=governed)
    for _ in range(3):
        _, _, done = collect(generator.generate([3, 4, 5, 6] * 8, ToySampler(), method, Limits(150)))
        assert done.stats.n_drafted > 10
        assert done.stats.n_accepted > 10


def test_the_common_beginning_of_two_prompts_is_read_once() -> None:
    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    first, _, _ = collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(10)))
    second = [*PROMPT, *first, 4, 4, 8]
    events = list(generator.generate(second, ToySampler(), plain(), Limits(10)))
    # All but the last emitted token were in the cache; the last prompt token is the root of the first tree.
    assert events[0].n_cached == 14 and events[0].n_prompt == 18  # type: ignore[union-attr]
    assert ctx.prefilled[-1] == 3
    assert collect(events)[0] == run(plain(), second, Limits(10))[0]


def test_the_same_prompt_again_evaluates_its_last_token_only() -> None:
    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    texts = [collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(10)))[0] for _ in range(2)]
    assert texts[0] == texts[1]
    assert ctx.n_prefills == 1


def test_a_prompt_shorter_than_the_cache_trims_it() -> None:
    generator = Generator(ToyVocab(), ToyContext())
    collect(generator.generate([5, 9, 3, 5, 9, 1, 2], ToySampler(), plain(), Limits(20)))
    tokens, _, _ = collect(generator.generate([5, 9], ToySampler(), plain(), Limits(9)))
    assert tokens == run(plain(), [5, 9], Limits(9))[0]


@pytest.mark.parametrize("trim_to", [lambda n: 0, lambda n: max(0, n - 3)])
def test_a_cache_that_trims_further_than_asked_is_refilled(trim_to: object) -> None:
    ctx = ToyContext(trim_to=trim_to)  # type: ignore[arg-type]
    generator = Generator(ToyVocab(), ctx)
    collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(10)))
    prompt = [*PROMPT, 1, 2, 3]
    tokens, _, _ = collect(generator.generate(prompt, ToySampler(), plain(), Limits(10)))
    assert tokens == run(plain(), prompt, Limits(10))[0]
    assert generator.chain == ctx.chain


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        Generator(ToyVocab(), ToyContext()).generate([], ToySampler(), plain())


@pytest.mark.parametrize("n", [64, 65, 200])
def test_a_prompt_too_long_is_refused_with_both_numbers_and_the_cache_kept(n: int) -> None:
    ctx = ToyContext(64)
    generator = Generator(ToyVocab(), ctx)
    collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(10)))
    before = list(ctx.chain)
    with pytest.raises(ContextLengthError, match=rf"\b{n}\b.*\b64\b"):
        generator.generate([1] * n, ToySampler(), plain())
    assert ctx.chain == generator.chain == before
    assert len(collect(generator.generate([1] * 63, ToySampler(), plain(), Limits(None)))[0]) == 1


@pytest.mark.parametrize("n", [0, -1])
def test_limits_that_allow_no_token_are_refused(n: int) -> None:
    with pytest.raises(UsageError, match="max_tokens"):
        Limits(n)


def test_cancelling_takes_effect_at_the_next_step() -> None:
    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    tokens: list[int] = []
    events = generator.generate(PROMPT, ToySampler(), plain(), Limits(60), lambda: len(tokens) == 3)
    for event in events:
        if isinstance(event, StepEvent):
            tokens += event.tokens
    assert event.reason == "cancelled"  # type: ignore[union-attr]
    assert ctx.n_decodes == 3
    assert generator.chain == ctx.chain == [*PROMPT, *tokens[:2]]


def test_cancelling_while_the_prompt_is_read_keeps_what_was_read() -> None:
    ctx = ToyContext(chunk=4)
    generator = Generator(ToyVocab(), ctx)
    prompt = list(range(1, 31))
    asked = iter([False, True])
    events = list(generator.generate(prompt, ToySampler(), plain(), Limits(5), lambda: next(asked)))
    assert [event.reason for event in events] == ["cancelled"]  # type: ignore[union-attr]
    assert ctx.n_decodes == 0
    assert generator.chain == ctx.chain == prompt[:8]
    tokens, _, _ = collect(generator.generate(prompt, ToySampler(), plain(), Limits(5)))
    assert tokens == run(plain(), prompt, Limits(5))[0]
    assert ctx.prefilled[-1] == 21


def test_closing_the_iterator_leaves_a_usable_generator() -> None:
    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    events = generator.generate(PROMPT, ToySampler(), lookup(), Limits(60))
    for _ in range(4):
        next(events)
    events.close()  # type: ignore[attr-defined]
    assert generator.chain == ctx.chain
    assert collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(20)))[0] == continuation(20)[5:]


@pytest.mark.parametrize("failure", ["fail_decode", "fail_accept", "fail_prefill"])
@pytest.mark.parametrize("k", [1, 3])
def test_an_engine_failure_leaves_a_usable_generator(failure: str, k: int) -> None:
    ctx = ToyContext(**{failure: k})  # type: ignore[arg-type]
    generator = Generator(ToyVocab(), ctx)
    failed = 0
    for prompt in ([1, 2, 3, 4], [*range(1, 20)], [1, 2, *range(5, 20)], [8, 8, 8]):
        try:
            tokens, _, _ = collect(generator.generate(prompt, ToySampler(), lookup(), Limits(20)))
        except EngineError:
            failed += 1
        else:
            assert tokens == run(plain(), prompt, Limits(20))[0]
        assert generator.chain == ctx.chain
    assert failed == 1


class Boom(Exception):
    pass


def test_a_failing_sampler_leaves_a_usable_generator() -> None:
    class Failing(ToySampler):
        def accept(self, token: int) -> None:
            super().accept(token)
            if len(self.history) == 4:
                raise Boom

    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    known = continuation()
    with pytest.raises(Boom):
        collect(generator.generate(PROMPT, Failing(), method_of(chain_drafter(known, 2)), Limits(20)))
    assert generator.chain == ctx.chain == known[:7]
    assert collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(20)))[0] == known[5:25]


def test_a_newer_generation_ends_the_older_one() -> None:
    generator = Generator(ToyVocab(), ToyContext())
    old = generator.generate(PROMPT, ToySampler(), plain(), Limits(20))
    next(old), next(old)
    new = generator.generate(PROMPT, ToySampler(), plain(), Limits(20))
    next(new)
    with pytest.raises(EngineError, match="newer"):
        next(old)
    assert collect(new)[0] == continuation(20)[5:]


def test_a_cache_changed_from_outside_is_not_trusted() -> None:
    ctx = ToyContext()
    generator = Generator(ToyVocab(), ctx)
    collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(20)))
    ctx.trim(0)
    ctx.prefill([1, 1, 1])
    assert collect(generator.generate(PROMPT, ToySampler(), plain(), Limits(20)))[0] == continuation(20)[5:]


def test_an_engine_that_loses_count_is_an_error_not_wrong_text() -> None:
    class Sloppy(ToyContext):
        def accept(self, path: object, seq: int = 0) -> None:
            super().accept(list(path)[:-1])  # type: ignore[call-overload]

    generator = Generator(ToyVocab(), Sloppy())
    with pytest.raises(EngineError, match="holds"):
        collect(generator.generate(PROMPT, ToySampler(), plain()))
    assert generator.chain == []


def test_a_drafter_with_a_wrong_root_is_an_error_not_wrong_text() -> None:
    class Lost(PlainDrafter):
        def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
            return Tree.root(31)

    method = Method("lost", Lost(), Fixed(4), StrictVerifier())
    with pytest.raises(EngineError, match="lost"):
        collect(Generator(ToyVocab(), ToyContext()).generate(PROMPT, ToySampler(), method))


def test_trees_never_exceed_the_engine_even_if_the_drafter_does() -> None:
    def grow(text: list[int], builder: object, max_nodes: int) -> None:
        for token in range(1, 32):
            builder.add(0, token, 0.1)  # type: ignore[attr-defined]

    ctx = ToyContext(max_nodes=5)
    run(method_of(Scripted(grow), 64), ctx=ctx)
    assert max(ctx.trees) == 5


def test_a_model_without_trees_decodes_plainly_and_says_why() -> None:
    method = make_method("auto", curve=None, max_nodes=1, limit_reason="recurrent model")
    ctx = ToyContext(max_nodes=1)
    events = list(Generator(ToyVocab(), ctx).generate(PROMPT, ToySampler(), method, Limits(10)))
    assert [event.text for event in events if isinstance(event, NoteEvent)] == ["spec off: recurrent model"]
    assert collect(events)[0] == continuation(10)[5:]
    assert set(ctx.trees) == {1}


def test_an_unknown_method_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match=r"auto, ptd, .*lookup, plain"):
        make_method("medua", curve=None, max_nodes=8)


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_the_cache_is_true_over_a_history_of_requests_errors_and_breaks(seed: int) -> None:
    rng = random.Random(seed)
    ctx = ToyContext(96, chunk=4, eog_bias=-2.0, trim_to=lambda n: rng.choice([n, n, max(0, n - 2), 0]))
    generator = Generator(ToyVocab(), ctx)
    prompt = [1, 2, 3]
    for _ in range(8):
        prompt = rng.choice([prompt, prompt[: rng.randint(1, len(prompt))], [*prompt, 4, 5]])[:60]
        ctx._fail["decode"] = ctx.n_decodes + rng.randint(1, 12)
        events = generator.generate(prompt, ToySampler(1.0, seed), method_of(random_drafter(seed)), Limits(30))
        emitted: list[int] = []
        try:
            for event in events:
                if isinstance(event, StepEvent):
                    emitted += event.tokens
                    assert generator.chain == ctx.chain == [*prompt, *emitted][:-1]
                    if rng.random() < 0.05:
                        break
        except EngineError:
            pass
        events.close()  # type: ignore[attr-defined]
        assert generator.chain == ctx.chain == [*prompt, *emitted][:-1]
        prompt = [*prompt, *emitted]
