"""The sampler chain: every parameter acts, seeds repeat, and a grammar is never left."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localspec.engine.grammar import schema_to_gbnf
from localspec.engine.host import HostRows
from localspec.engine.model import Model
from localspec.engine.params import SamplingParams
from localspec.engine.sampler import ChainSampler
from localspec.errors import EngineError, UsageError
from localspec.methods.base import Verifier
from localspec.methods.fly import LooseRule
from localspec.methods.loose import LooseVerifier
from localspec.methods.strict import StrictVerifier
from localspec.tree import TreeBuilder
from tests.engine.conftest import MakeContext

NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 7}
#: four tokens of the tiny vocabulary that read "a" to "d", and their probabilities
A, B, C, D = (5 + ord(letter) for letter in "abcd")
P = {A: 0.5, B: 0.3, C: 0.15, D: 0.05}

MakeSampler = Callable[..., ChainSampler]


@pytest.fixture
def make_sampler(tiny: dict[str, Model]) -> MakeSampler:
    def make(**params: Any) -> ChainSampler:
        sampler = ChainSampler(tiny["llama"], SamplingParams(**params))
        sampler.start([])
        return sampler

    return make


@pytest.fixture
def rows_of(tiny: dict[str, Model]) -> Callable[[dict[int, float]], HostRows]:
    """One row with the given logits; every other token is impossible."""

    def make(logits: dict[int, float]) -> HostRows:
        row = np.full((1, tiny["llama"].n_vocab), -np.inf, dtype=np.float32)
        for token, logit in logits.items():
            row[0, token] = logit
        return HostRows(row, lambda i: row[i], lambda: True)

    return make


@pytest.fixture
def rows(rows_of: Callable[[dict[int, float]], HostRows]) -> HostRows:
    return rows_of({token: math.log(p) for token, p in P.items()})


@pytest.mark.parametrize(
    ("params", "possible"),
    [
        ({}, {A, B, C, D}),
        ({"top_k": 1}, {A}),
        ({"top_k": 3}, {A, B, C}),
        ({"top_p": 0.6}, {A, B}),
        ({"min_p": 0.2}, {A, B, C}),
        ({"typical_p": 0.2}, {B}),  # the token closest to the mean surprise, which is not the likeliest
        ({"typical_p": 0.2, "grammar": "root ::= [ad]"}, {A}),
        ({"temperature": 0.05}, {A}),
        ({"temperature": 0.0}, {A}),
        ({"logit_bias": {A: -math.inf, D: -math.inf}}, {B, C}),
        ({"logit_bias": {D: 30.0}}, {D}),
        ({"logit_bias": {D: 30.0}, "temperature": 0.0}, {D}),
    ],
    ids=str,
)
def test_parameter_reaches_the_chain(
    make_sampler: MakeSampler, rows: HostRows, params: dict[str, Any], possible: set[int]
) -> None:
    with make_sampler(**{**NEUTRAL, **params}) as sampler:
        assert {sampler.sample(rows, 0) for _ in range(300)} == possible


def test_draws_follow_the_distribution(make_sampler: MakeSampler, rows: HostRows) -> None:
    n = 4000
    with make_sampler(**NEUTRAL) as sampler:
        counts = Counter(sampler.sample(rows, 0) for _ in range(n))
    chi_square = sum((counts[token] - n * p) ** 2 / (n * p) for token, p in P.items())
    assert chi_square < 16.27  # 3 degrees of freedom, one chance in a thousand; the seed is fixed


LAWS: dict[str, dict[str, Any]] = {
    "neutral": {},
    "sharp": {"temperature": 0.6},
    "cut": {"top_k": 3, "top_p": 0.9, "min_p": 0.1},
    "typical": {"typical_p": 0.7},
    "penalised": {"repeat_penalty": 1.3, "presence_penalty": 0.4},
    "biased": {"logit_bias": {A: -1.0, D: 2.0}},
    "grammar": {"grammar": "root ::= [bcd]+", "temperature": 1.4},
    "grammar cut": {"grammar": "root ::= [acd]+", "top_k": 2},
}


@pytest.mark.parametrize("params", LAWS.values(), ids=LAWS)
def test_the_law_is_what_draws_follow(make_sampler: MakeSampler, rows: HostRows, params: dict[str, Any]) -> None:
    n = 4000
    with make_sampler(**{**NEUTRAL, **params}) as sampler:
        sampler.accept(B if params.get("grammar") == "root ::= [bcd]+" else A)
        law = sampler.law(rows, 0)
        counts = Counter(sampler.sample(rows, 0) for _ in range(n))
    assert law.p.sum() == pytest.approx(1.0) and len(set(law.ids.tolist())) == len(law.ids)
    assert set(counts) == set(law.ids.tolist())
    chi_square = sum((counts[t] - n * p) ** 2 / (n * p) for t, p in zip(law.ids.tolist(), law.p, strict=True))
    assert chi_square < 16.27  # at most 3 degrees of freedom


def test_asking_for_the_law_changes_no_draw(make_sampler: MakeSampler, rows: HostRows) -> None:
    def draws(asked: bool) -> list[int]:
        with make_sampler(**NEUTRAL) as sampler:
            tokens = []
            for _ in range(64):
                if asked:
                    sampler.law(rows, 0)
                    sampler.uniform()
                tokens.append(sampler.sample(rows, 0))
            return tokens

    assert draws(True) == draws(False)


def test_the_law_at_temperature_0_is_the_best_token_that_the_grammar_allows(
    make_sampler: MakeSampler, rows: HostRows
) -> None:
    for params, best in (({}, A), ({"grammar": "root ::= [cd]"}, C)):
        with make_sampler(temperature=0.0, **params) as sampler:
            law = sampler.law(rows, 0)
            assert law.ids.tolist() == [best] and law.p.tolist() == [1.0]


def test_no_law_where_the_grammar_leaves_nothing(make_sampler: MakeSampler, rows: HostRows) -> None:
    with make_sampler(**NEUTRAL, grammar='root ::= "a"') as sampler:
        sampler.accept(A)
        with pytest.raises(EngineError, match="no token"):
            sampler.law(rows, 0)


def test_random_numbers_repeat_with_the_seed(make_sampler: MakeSampler) -> None:
    with make_sampler(**NEUTRAL) as sampler, make_sampler(**NEUTRAL | {"seed": 8}) as other:
        first = [sampler.uniform() for _ in range(4)]
        sampler.start([])
        assert [sampler.uniform() for _ in range(4)] == first != [other.uniform() for _ in range(4)]
        assert all(0.0 <= number < 1.0 for number in first)


@pytest.mark.parametrize(
    ("params", "history", "expected"),
    [
        ({"repeat_penalty": 1.5}, [A], B),
        ({"repeat_penalty": 1.5}, [B], A),
        ({"repeat_penalty": 1.5, "repeat_last_n": 0}, [A], A),
        ({"repeat_penalty": 1.5, "repeat_last_n": 2}, [A, C, D], A),
        ({"repeat_penalty": 1.5, "repeat_last_n": -1}, [A] + [C, D] * 50, B),
        ({"frequency_penalty": 0.3}, [A], A),
        ({"frequency_penalty": 0.3}, [A, A], B),
        ({"presence_penalty": 0.3}, [A, A], A),
        ({"presence_penalty": 0.6}, [A, A], B),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_prompt", [True, False], ids=["prompt", "text"])
def test_penalties_see_prompt_and_text(
    make_sampler: MakeSampler,
    rows_of: Callable[[dict[int, float]], HostRows],
    params: dict[str, Any],
    history: list[int],
    expected: int,
    as_prompt: bool,
) -> None:
    rows = rows_of({A: 2.5, B: 2.0, C: 0.0, D: 0.0})
    with make_sampler(temperature=0.0, **params) as sampler:
        sampler.start(history if as_prompt else [])
        for token in [] if as_prompt else history:
            sampler.accept(token)
        assert sampler.sample(rows, 0) == expected


def test_penalties_that_see_the_answer_alone(
    make_sampler: MakeSampler, rows_of: Callable[[dict[int, float]], HostRows]
) -> None:
    rows = rows_of({A: 2.5, B: 2.0})
    with make_sampler(temperature=0.0, repeat_penalty=1.5, penalise_prompt=False) as sampler:
        sampler.start([A])
        assert sampler.sample(rows, 0) == A
        sampler.accept(A)
        assert sampler.sample(rows, 0) == B


def test_drawing_does_not_change_the_history(
    make_sampler: MakeSampler, rows_of: Callable[[dict[int, float]], HostRows]
) -> None:
    rows = rows_of({A: 2.5, B: 2.0})
    with make_sampler(temperature=0.0, repeat_penalty=1.5) as sampler:
        assert [sampler.sample(rows, 0) for _ in range(3)] == [A, A, A]
        sampler.accept(A)
        assert sampler.sample(rows, 0) == B
        sampler.start([])
        assert sampler.sample(rows, 0) == A


def test_same_seed_gives_the_same_tokens(make_sampler: MakeSampler, rows: HostRows) -> None:
    def draws(sampler: ChainSampler) -> list[int]:
        sampler.start([])
        return [sampler.sample(rows, 0) for _ in range(64)]

    sampler = make_sampler(**NEUTRAL)
    first = draws(sampler)
    assert draws(sampler) == first
    assert draws(make_sampler(**NEUTRAL)) == first
    assert draws(make_sampler(**NEUTRAL | {"seed": 8})) != first


@pytest.mark.parametrize("seed", [None, -1, 2**32 - 1, 2**63])
def test_recorded_seed_repeats_the_text(make_sampler: MakeSampler, rows: HostRows, seed: int | None) -> None:
    with make_sampler(**NEUTRAL | {"seed": seed}) as sampler:
        first = [sampler.sample(rows, 0) for _ in range(64)]
        recorded = sampler.seed
    with make_sampler(**NEUTRAL | {"seed": recorded}) as sampler:
        assert [sampler.sample(rows, 0) for _ in range(64)] == first


def test_random_seeds_differ(make_sampler: MakeSampler) -> None:
    assert len({make_sampler(seed=None).seed for _ in range(8)}) == 8


def test_grammar_overrules_the_model(make_sampler: MakeSampler, rows: HostRows, tiny: dict[str, Model]) -> None:
    for temperature in (0.0, 1.0):
        with make_sampler(**NEUTRAL | {"temperature": temperature, "grammar": 'root ::= "d" [bc]'}) as sampler:
            assert sampler.sample(rows, 0) == D
            assert not sampler.permits(A)
            sampler.accept(D)
            token = sampler.sample(rows, 0)
            assert token in (B, C)
            sampler.accept(token)
            with pytest.raises(EngineError, match="no token"):
                sampler.sample(rows, 0)  # only an end token may follow, and this row makes it impossible


def test_text_ends_when_the_grammar_is_complete_and_not_before(
    make_sampler: MakeSampler, rows_of: Callable[[dict[int, float]], HostRows], tiny: dict[str, Model]
) -> None:
    end = tiny["llama"].eos
    assert end is not None
    rows = rows_of({end: 5.0, A: 1.0, B: 0.0})
    with make_sampler(temperature=0.0, grammar='root ::= "a" "a"') as sampler:
        text = []
        for _ in range(3):
            text.append(sampler.sample(rows, 0))
            sampler.accept(text[-1])
        assert text == [A, A, end]


def test_forbidden_token_is_refused_and_forgotten(make_sampler: MakeSampler, rows: HostRows) -> None:
    with make_sampler(**NEUTRAL, grammar='root ::= "ab"') as sampler:
        with pytest.raises(EngineError, match="grammar"):
            sampler.accept(B)
        assert sampler.sample(rows, 0) == A
        sampler.accept(A)
        sampler.start([])
        assert sampler.sample(rows, 0) == A


FORKED: dict[str, dict[str, Any]] = {
    "draws": {},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    "penalties at 0": {"temperature": 0.0, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    "grammar": {"grammar": "root ::= ([ab] [cd])+"},
    "grammar at 0": {"temperature": 0.0, "grammar": "root ::= ([ab] [cd])+"},
    "all": {"repeat_penalty": 1.3, "grammar": "root ::= ([ab] [cd])+", "logit_bias": {C: 0.5}},
}


def go_on(sampler: ChainSampler, rows: HostRows, n: int) -> list[int]:
    tokens = []
    for _ in range(n):
        tokens.append(sampler.sample(rows, 0))
        sampler.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("params", FORKED.values(), ids=FORKED)
def test_a_fork_goes_on_alike_and_leaves_its_origin_alone(
    make_sampler: MakeSampler, rows: HostRows, params: dict[str, Any]
) -> None:
    with make_sampler(**NEUTRAL | params) as whole, make_sampler(**NEUTRAL | params) as sampler:
        text = go_on(whole, rows, 30)
        assert go_on(sampler, rows, 5) == text[:5]
        fork = sampler.fork()
        assert go_on(fork, rows, 25) == text[5:]
        other = sampler.fork()  # on another way
        rival = next(token for token in (A, B, C, D) if token != text[5] and other.permits(token))
        other.sample(rows, 0)
        other.accept(rival)
        go_on(other, rows, 5)
        assert sampler.uniform() == whole.uniform()
        assert go_on(sampler, rows, 25) == text[5:]


@pytest.mark.parametrize("params", FORKED.values(), ids=FORKED)
def test_a_sampler_that_adopts_a_fork_goes_on_where_it_stands(
    make_sampler: MakeSampler, rows: HostRows, params: dict[str, Any]
) -> None:
    with make_sampler(**NEUTRAL | params) as whole, make_sampler(**NEUTRAL | params) as sampler:
        text = go_on(whole, rows, 30)
        spent = sampler.native_seconds
        for _ in range(3):
            fork = sampler.fork()
            go_on(fork, rows, 5)
            sampler.adopt(fork)
            del fork
        assert go_on(sampler, rows, 15) == text[15:]
        assert sampler.native_seconds > spent or params.get("temperature") == 0.0
        sampler.start([])
        assert go_on(sampler, rows, 30) == text


def test_what_could_be_emitted(make_sampler: MakeSampler, rows: HostRows) -> None:
    def allowed(**params: Any) -> set[int]:
        with make_sampler(**NEUTRAL | params) as sampler:
            return {token for token in (A, B, C, D) if sampler.allows(rows, 0, token)}

    assert allowed() == allowed(temperature=0.0) == {A, B, C, D}
    assert allowed(top_k=2) == {A, B}
    assert allowed(top_k=2, temperature=0.0) == {A, B, C, D}, "filters have no say at temperature 0"
    for temperature in (0.0, 1.0):
        assert allowed(temperature=temperature, grammar="root ::= [bd]") == {B, D}
        assert allowed(temperature=temperature, logit_bias={A: -math.inf}) == {B, C, D}


BAD_GRAMMARS = {
    "unfinished literal": 'root ::= "a',
    "undefined rule": "root ::= other",
    "no root": 'other ::= "a"',
    "left recursion": 'root ::= root "a"',
    "empty": " \n",
    "nul": 'root ::= "a\0"',
    "too deep": "root ::= " + "(" * 10**5 + '"a"' + ")" * 10**5,
    "too many rules": 'root ::= "a"\n' + "".join(f'r{i} ::= "a"\n' for i in range(10**4)),
}


@pytest.mark.parametrize("grammar", BAD_GRAMMARS.values(), ids=BAD_GRAMMARS)
def test_bad_grammar_is_an_error_and_silent(
    make_sampler: MakeSampler, capfd: pytest.CaptureFixture[str], grammar: str
) -> None:
    with pytest.raises(UsageError, match="grammar"):
        make_sampler(grammar=grammar)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_deep_but_sane_grammar_is_accepted(make_sampler: MakeSampler) -> None:
    make_sampler(grammar="root ::= " + "(" * 200 + '"((("' + ")" * 200).close()


@pytest.mark.parametrize(
    "schema",
    ["{", "[]", {"type": "none"}, {"$ref": "https://example.org/schema"}, {"$ref": "#/missing"}, {"pattern": "x"}],
    ids=str,
)
def test_bad_schema_is_an_error(make_sampler: MakeSampler, schema: Any) -> None:
    with pytest.raises(UsageError, match="json_schema"):
        make_sampler(json_schema=schema)


def test_schema_descriptions_may_hold_any_text() -> None:
    schema = {"type": "string", "description": '"quotes" \\ and ::= ' + "x" * 10_000}
    assert "quotes" not in schema_to_gbnf(schema)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("typical_p", 2),
        ("repeat_penalty", 0.0),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
        ("repeat_last_n", -2),
        ("seed", -2),
        ("seed", True),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {5: math.nan}),
        ("logit_bias", {10**6: 1.0}),
    ],
)
def test_unusable_parameter_is_named(make_sampler: MakeSampler, field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=field):
        make_sampler(**{field: value})


def test_grammar_and_schema_exclude_each_other(make_sampler: MakeSampler) -> None:
    with pytest.raises(UsageError, match="exclude"):
        make_sampler(grammar='root ::= "a"', json_schema={})


@pytest.mark.model
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("verifier", [StrictVerifier(), LooseVerifier(LooseRule(0.0, 1))], ids=["strict", "loose"])
def test_json_is_valid_although_drafts_are_not(
    model: Model, mode: str, make_context: MakeContext, seed: int, verifier: Verifier
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "size": {"enum": ["small", "large"]},
            "sites": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        },
        "required": ["city", "size", "sites"],
        "additionalProperties": False,
    }
    prompt = model.tokenize("Describe a city as JSON:\n")
    context = make_context(model, mode)
    context.prefill(prompt[:-1])
    rng = random.Random(seed)
    text, token = b"", prompt[-1]
    with ChainSampler(model, SamplingParams(temperature=1.2, seed=seed, json_schema=schema)) as sampler:
        sampler.start(prompt)
        while token not in model.eog:
            builder = TreeBuilder(token)
            for draft in model.tokenize('{"city": "}') + [rng.randrange(model.n_vocab) for _ in range(3)]:
                builder.add(rng.randrange(len(builder)), draft, 0.5)
            tree = builder.build()
            rows = context.decode(tree.tokens, tree.topology.parents)
            walk = verifier.walk(tree, rows, sampler, model.eog, 16)
            context.accept([0, *walk.path])
            text, token = text + model.text(walk.tokens), walk.tokens[-1]
            assert len(text) < 500
    answer = json.loads(text)
    assert set(answer) == {"city", "size", "sites"}
    assert answer["size"] in ("small", "large")
    assert len(answer["city"]) <= 12
    assert 2 <= len(answer["sites"]) <= 3
