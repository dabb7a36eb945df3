"""A calibrated bank for people: its trees, and what the policies make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.entmtp.bank_file import StoredBank

if TYPE_CHECKING:
    from rich.table import Table


def header_lines(stored: StoredBank) -> list[str]:
    """What the figures belong to."""
    setup, report = stored.key.setup, stored.report
    return [
        f"{stored.names.model} with {stored.names.heads}, task {stored.key.task}: {report.get('answers')} answers, "
        f"{report.get('tokens')} tokens; {report.get('answers_measured')} answers measured",
        f"{setup.device}, threads: {setup.n_threads}, {stored.names.build}; {stored.created[:10]}",
    ]


def tree_table(stored: StoredBank) -> Table:
    """All trees that were run. A share of steps stands behind those of the bank."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = ("Nodes", "Depth", "Accepted", "expected", "measured", "Draft", "Step", "planned", "tok/s", "Share")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    shares = dict(zip(stored.bank.trees, stored.policies[stored.best].shares, strict=True))
    for tree in stored.measured:
        share = shares.get(tree.tree)
        table.add_row(
            str(tree.tree.n_nodes),
            str(tree.tree.depth),
            f"{tree.mean_accepted:.2f}",
            f"{tree.expected:.3f}",
            f"{tree.measured:.3f}",
            f"{tree.draft_seconds * 1e3:.2f} ms",
            f"{tree.seconds * 1e3:.2f} ms",
            f"{tree.planned_seconds * 1e3:.2f} ms",
            f"{tree.tokens_per_second:.1f}",
            "-" if share is None else f"{share:.0%}",
            style=None if share is not None else "dim",
        )
    return table


def policy_table(stored: StoredBank) -> Table:
    """The policies; the one to use is marked."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Policy", no_wrap=True)
    for name in ("tok/s by replay", "on other answers", "Shares of the trees"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, fitted in stored.policies.items():
        shares = " ".join(f"{share:.0%}" for share in fitted.shares)
        mark = "* " if name == stored.best else "  "
        table.add_row(mark + name, f"{fitted.tokens_per_second:.1f}", f"{fitted.held_out:.1f}", shares)
    return table


def footnotes(stored: StoredBank) -> list[str]:
    """What a reader of the tables should know."""
    lines = [
        "Nodes count the last token. Accepted: drafts a step, by replay of all answers; expected and measured: on the "
        "answers that were run again. Share: of the steps, with the policy marked *; trees without one are not in the "
        "bank, as a smaller one is as fast."
    ]
    if len(stored.bank) == 1:
        lines.append("No tree is faster than plain decoding with these heads here.")
    if other := stored.report.get("runs_with_another_text"):
        lines.append(
            f"{other} of {stored.report.get('runs')} runs wrote another text than plain decoding, as happens where "
            "kernels depend on the batch; their acceptance need not be the expected one."
        )
    return lines
