"""How drafts are verified when something else than sample-and-match is asked for, and which methods can do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from localspec.engine.params import SamplingParams
from localspec.errors import UsageError
from localspec.methods.base import Method
from localspec.methods.draft.governor import DraftGovernor
from localspec.methods.fly import LooseRule
from localspec.methods.heads import HeadsDrafter
from localspec.methods.loose import LooseVerifier
from localspec.methods.sampled import LEAST_TEMPERATURE, DraftSampling
from localspec.methods.sequoia import SequoiaVerifier
from localspec.methods.typical import TypicalVerifier

Accept = Literal["strict", "typical", "loose"]


@dataclass(frozen=True)
class Acceptance:
    """`accept` "strict" keeps the target's distribution, "typical" and "loose" (FLy, by the rule `loose`) do not. With
    `draft_sampling` heads draft by chance: the distribution is kept, but a seed no longer gives the text of plain
    decoding."""

    accept: Accept = "strict"
    draft_sampling: bool = False
    loose: LooseRule = field(default_factory=LooseRule)

    @property
    def lossless(self) -> bool:
        """Whether texts have the target's distribution."""
        return self.accept == "strict"

    def to_dict(self) -> dict[str, Any]:
        """The rule and its parameters, for JSON."""
        return {"accept": self.accept, **(asdict(self.loose) if self.accept == "loose" else {})}

    def __str__(self) -> str:
        if self.accept != "loose":
            return f"{self.accept} acceptance"
        return f"loose acceptance, {self.loose}"

    def check(self, sampling: SamplingParams) -> None:
        """Raise `UsageError` when this does not go with these sampling parameters, or with itself."""
        if self.accept != "strict" and self.draft_sampling:
            raise UsageError(f"--draft-sampling and --accept {self.accept} exclude each other", "leave out one of them")
        if self.draft_sampling and sampling.temperature < LEAST_TEMPERATURE:
            raise UsageError(
                f"--draft-sampling needs temperature={LEAST_TEMPERATURE:g} or more, not {sampling.temperature:g}",
                "leave it out: below that the heads' most likely tokens are accepted more often",
            )
        if self.accept == "typical" and (sampling.penalised or sampling.constrained):
            raise UsageError(
                "--accept typical compares paths, so it goes with no penalty, grammar or JSON schema",
                "leave them out, or use --accept strict",
            )

    def apply(self, method: Method, sampling: SamplingParams, seed: int, piece: Callable[[int], bytes]) -> Method:
        """The method for one generation: `method` with the verifier, and its heads with the way of drafting, that are
        asked for. Plain decoding has nothing to accept, and stays as it is. `piece` tells the bytes of a token.

        Raises `UsageError` when that cannot be.
        """
        self.check(sampling)
        heads = method.drafter if isinstance(method.drafter, HeadsDrafter) else None
        if method.name == "plain":
            return method
        if self.draft_sampling:
            if heads is None:
                raise UsageError(
                    f"--draft-sampling needs a method that drafts with heads alone, and {method.name!r} does not",
                    "leave it out, or choose another method: --method heads",
                )
            # a stream of its own: the sampler's random numbers decide what is accepted
            drafting = DraftSampling(sampling.temperature, np.random.default_rng((seed, 1)))
            heads.sample_drafts(drafting)
            return replace(method, verifier=SequoiaVerifier(drafting))
        if heads is not None:
            heads.sample_drafts(None)
        if isinstance(method.scheduler, DraftGovernor):
            method.scheduler.forgive(self.loose if self.accept == "loose" else None)
        if self.accept == "typical":
            return replace(method, verifier=TypicalVerifier())
        if self.accept == "loose":
            return replace(method, verifier=LooseVerifier(self.loose, piece))
        return method
