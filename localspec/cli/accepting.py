"""Options for how drafts are made and accepted, where that is not sample-and-match."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, get_args

from typer import Option

from localspec.cli.options import SAMPLING, named_as_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.engine.params import SamplingParams
    from localspec.methods.acceptance import Acceptance
    from localspec.methods.fly import LooseRule


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
        Option("--accept", metavar="RULE", help="strict; or one of two lossy rules, whose texts do not have the "
               "model's distribution. loose (FLy) forgives a draft where the model is unsure and agrees with what "
               "follows; it was made for a draft model, as only drafts of more than --window tokens can be forgiven "
               "anything. typical is the rule that Medusa and EntMTP were published with.", rich_help_panel=SAMPLING),
    ] = "strict"  # fmt: skip
    theta: Annotated[
        float | None,
        Option("--theta", metavar="H", help="With --accept loose: forgive where the model's entropy is at least this; "
               "0.3 by default.", show_default=False, rich_help_panel=SAMPLING),
    ] = None  # fmt: skip
    window: Annotated[
        int | None,
        Option("--window", metavar="N", help="With --accept loose: how many tokens of agreement it takes, the forgiven "
               "one counted; 6 by default.", show_default=False, rich_help_panel=SAMPLING),
    ] = None  # fmt: skip
    entropy: Annotated[
        str | None,
        Option("--entropy", metavar="FORM", help="With --accept loose: top3, that of the three likeliest tokens in "
               "nats, as FLy's code has it (the default); or normalised, a share of the largest possible, as in the "
               "paper, which forgives next to nothing at 0.3.", show_default=False, rich_help_panel=SAMPLING),
    ] = None  # fmt: skip
    ratio: Annotated[
        float | None,
        Option("--ratio", metavar="R", help="With --accept loose: forgive only tokens to which the model gives at "
               "least this share of the probability of its best one; 0 by default, as published; 0.3 is safer.",
               show_default=False, rich_help_panel=SAMPLING),
    ] = None  # fmt: skip

    literals: Annotated[
        str | None,
        Option("--literals", metavar="HOW", help="With --accept loose: exact forgives nothing where the draft or the "
               "model has a number, a sign of code or an indentation: a thought may be worded otherwise, these may "
               "not; loose (the default) makes no difference, as published.", show_default=False,
               rich_help_panel=SAMPLING),
    ] = None  # fmt: skip

    def acceptance(self, sampling: SamplingParams, method: str | None = None) -> Acceptance:
        """What was asked for. Raises `UsageError` for what does not go with `sampling`, or with the method so called.

        Whether a method has heads is known once a model is loaded.
        """
        from localspec.methods.acceptance import Accept, Acceptance

        accept = next((rule for rule in get_args(Accept) if rule == self.accept), None)
        if accept is None:
            raise UsageError(f"there is no --accept {self.accept!r}", "strict, loose or typical")
        made = Acceptance(accept, self.draft_sampling, self._loose())
        with named_as_options():
            made.check(sampling)
        if method == "plain" and (self.draft_sampling or accept != "strict"):
            what = "sample" if self.draft_sampling else f"accept: --accept {accept} would do nothing"
            raise UsageError(
                f"--method plain drafts nothing, so there is nothing to {what}", "leave out one of the two"
            )
        return made

    def _loose(self) -> LooseRule:
        """The parameters of loose acceptance. Raises `UsageError` where they are given and nothing is loose."""
        from localspec.methods.fly import LooseRule

        given = {field.name: getattr(self, field.name) for field in fields(LooseRule)}
        given = {name: value for name, value in given.items() if value is not None}
        if given and self.accept != "loose":
            name, value = next(iter(given.items()))
            raise UsageError(
                f"--{name} {value} goes with --accept loose, not with --accept {self.accept}",
                "add --accept loose, which is lossy, or leave it out",
            )
        if self.theta == math.inf:  # nor has JSON such a number
            raise UsageError("--theta inf forgives nothing", "--accept strict does the same")
        return LooseRule(**given)
