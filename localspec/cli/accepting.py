"""Options for how drafts are made and accepted, where that is not sample-and-match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from localspec.cli.options import SAMPLING, named_as_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.engine.params import SamplingParams
    from localspec.methods.acceptance import Acceptance


@dataclass
class AcceptOptions:
    """How drafts are made and accepted."""

    draft_sampling: Annotated[
        bool,
        Option("--draft-sampling", help="Heads draw their drafts instead of taking the most likely tokens; needs "
               "--temp 0.7 or more. Texts keep the model's distribution, but the same seed no longer gives the same "
               "text.",
               rich_help_panel=SAMPLING),
    ] = False  # fmt: skip
    accept: Annotated[
        str,
        Option("--accept", metavar="RULE", help="strict; or typical, the rule that Medusa and EntMTP were published "
               "with, which is lossy: the text does not have the model's distribution.", rich_help_panel=SAMPLING),
    ] = "strict"  # fmt: skip

    def acceptance(self, sampling: SamplingParams, method: str | None = None) -> Acceptance:
        """What was asked for. Raises `UsageError` for what does not go with `sampling`, or with the method so called.

        Whether a method has heads is known once a model is loaded.
        """
        from localspec.methods.acceptance import Acceptance

        if self.accept not in ("strict", "typical"):
            raise UsageError(f"there is no --accept {self.accept!r}", "strict or typical")
        made = Acceptance("typical" if self.accept == "typical" else "strict", self.draft_sampling)
        with named_as_options():
            made.check(sampling)
        if self.draft_sampling and method == "plain":
            raise UsageError("--method plain drafts nothing, so there is nothing to sample", "leave out one of the two")
        return made
