"""The promise on a real model: with speculation on, the text is the same, byte for byte.

Drafts are verified whether they pay or not, so that many trees are walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from localspec.bench.prompts import own_prompts
from localspec.decode import Limits
from localspec.engine import patched
from localspec.engine.params import ContextParams, SamplingParams
from localspec.engine.sampler import ChainSampler
from localspec.events import DoneEvent, StepEvent
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.head_methods import make_head_drafter
from localspec.methods.lookup import LookupDrafter
from localspec.methods.plain import PlainDrafter
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.strict import StrictVerifier
from localspec.methods.union import UnionDrafter
from localspec.session import Session
from tests.with_model import calibrated_home

N_TOKENS = 96
N_NODES = 8
EXTRA_PROMPTS = ("Count from 1 to 40.", "Repeat the word 'tree' until you are stopped, then say why you stopped.")

pytestmark = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.skipif(
        not patched.available(), reason="exact on the patched library; see the README for the stock one"
    ),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with (
        calibrated_home(tmp_path_factory.mktemp("home")) as path,
        Session.open(path, method="plain", context=ContextParams(n_ctx=1024, n_threads=1)) as opened,
    ):
        yield opened


def answer(session: Session, prompt: list[int], method: Method, sampling: SamplingParams) -> tuple[str, list[int], int]:
    """Text, token ids, and the number of accepted drafts."""
    text, tokens = "", []
    with ChainSampler(session.model, sampling) as sampler:
        sampler.start(prompt)
        for event in session.generator.generate(prompt, sampler, method, Limits(N_TOKENS)):
            if isinstance(event, StepEvent):
                text += event.text
                tokens += event.tokens
            elif isinstance(event, DoneEvent):
                return text + event.text, tokens, event.stats.n_accepted
    raise AssertionError("a generation ends with a DoneEvent")


@pytest.mark.parametrize(
    ("first", "sampling"),
    [
        (0, SamplingParams(temperature=0.0)),
        (2, SamplingParams(temperature=0.8, seed=1234, repeat_penalty=1.05, frequency_penalty=0.1)),
    ],
    ids=["greedy", "seeded"],
)
def test_methods_write_the_same_text_as_plain_on_fifty_prompts(
    session: Session, first: int, sampling: SamplingParams
) -> None:
    """Two methods on each prompt, in turns: those that are left out of a greedy answer write the seeded one."""
    prompts = [prompt.text for prompt in own_prompts()] + list(EXTRA_PROMPTS)
    assert len(prompts) == 50
    heads = partial(make_head_drafter, "heads", session.materials.heads)
    plain_method = Method("plain", PlainDrafter(), Fixed(1), StrictVerifier())
    methods = [
        Method("lookup", LookupDrafter(), Fixed(N_NODES), StrictVerifier()),
        Method("ptd", PtdDrafter(), Fixed(N_NODES), StrictVerifier()),
        Method("heads", heads(), Fixed(N_NODES), StrictVerifier()),
        Method("ptd+heads", UnionDrafter(PtdDrafter(), heads(), None), Fixed(N_NODES), StrictVerifier()),
    ]
    n_accepted, different = dict.fromkeys((method.name for method in methods), 0), []
    for i, prompt in enumerate(prompts, start=first):
        tokens = session.chat_prompt([{"role": "user", "content": prompt}])
        plain = answer(session, tokens, plain_method, sampling)
        for method in (methods[i % 4], methods[(i + 1) % 4]):
            speculated = answer(session, tokens, method, sampling)
            if plain[:2] != speculated[:2]:
                different.append((method.name, prompt[:60]))
            n_accepted[method.name] += speculated[2]
    assert not different
    assert min(n_accepted.values()) > 75
