"""`localspec calibrate --task`: the bank of trees for one kind of text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import typer

from localspec.cli.options import EngineOptions
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.prompts import Prompt
    from localspec.entmtp.bank_file import StoredBank
    from localspec.entmtp.offline import Calibration
    from localspec.session import Session

STOPPED = 130
#: seconds between lines about progress where no bar can be shown
LINE_SECONDS = 30.0


def calibrate_bank(
    engine: EngineOptions,
    task: str,
    prompts_file: Path | None,
    limit: int | None,
    max_tokens: int,
    force: bool,
    as_json: bool,
    plot_file: Path | None,
) -> None:
    """Find the bank or make it, and show it."""
    from localspec.cli.answer import open_session
    from localspec.cli.bench import check_files
    from localspec.entmtp.prompts import calibration_prompts
    from localspec.machine import load_native

    prompts = calibration_prompts(task, prompts_file, limit)
    check_files(None, plot_file)
    load_native()
    with open_session(engine, "plain", hidden=True) as session:
        calibration = _calibration(session, task, prompts, max_tokens)
        stored = None if force else _found(calibration)
        if stored is None:
            stored = _make(calibration, force)
    _show(stored, as_json, plot_file)


def _calibration(session: Session, task: str, prompts: list[Prompt], max_tokens: int) -> Calibration:
    from localspec.entmtp.in_use import HeadsInUse
    from localspec.entmtp.offline import Calibration, Options

    return Calibration(session, HeadsInUse.of(session), task, prompts, Options(max_tokens))


def _found(calibration: Calibration) -> StoredBank | None:
    """The stored bank, unless a calibration of it is under way; why it is made when there is none."""
    from localspec.cli.console import note
    from localspec.entmtp.bank_file import bank_path, find_bank

    if calibration.journal_path.exists():
        return None
    try:
        stored = find_bank(calibration.key, calibration.heads.names)
    except UsageError as error:
        note(error.message)
        return None
    if not calibration.made(stored):
        note("the stored bank was made with other prompts or another --max-tokens")
        return None
    note(f"made at {stored.created[:16].replace('T', ' ')} UTC, in {bank_path(stored.key)}; --force makes it again")
    return stored


def _make(calibration: Calibration, force: bool) -> StoredBank:
    from localspec.cli.console import console, interrupt_flag, note, progress_bar
    from localspec.entmtp.bank_file import save_bank
    from localspec.entmtp.stages import Stopped

    if force:
        calibration.forget_measurements()
    terminal = console().is_terminal
    last = -LINE_SECONDS
    with interrupt_flag() as interrupted, progress_bar() as bar:

        def watch(stage: str, share: float) -> bool:
            nonlocal last
            bar(stage, share)
            if not terminal and monotonic() - last >= LINE_SECONDS:
                last = monotonic()
                note(f"{stage}, {share:.0%}")
            return not interrupted()

        calibration.session.on_progress(bar)
        calibration.watch = watch
        try:
            stored = calibration.run()
        except Stopped:
            note(f"stopped; the same command {'without --force ' if force else ''}goes on from here")
            raise typer.Exit(STOPPED) from None
    path = save_bank(stored)
    calibration.forget_measurements()
    note(f"stored in {path}")
    return stored


def _show(stored: StoredBank, as_json: bool, plot_file: Path | None) -> None:
    from localspec.cli.console import console
    from localspec.entmtp import report

    if as_json:
        sys.stdout.write(json.dumps(stored.to_dict(), ensure_ascii=False) + "\n")
    else:
        out = console(stderr=False)
        for line in report.header_lines(stored):
            out.print(line, style="dim", markup=False, soft_wrap=not out.is_terminal)
        out.print(report.tree_table(stored))
        out.print("")
        out.print(report.policy_table(stored))
        for line in report.footnotes(stored):
            out.print(f"\n{line}", style="dim", markup=False, soft_wrap=not out.is_terminal)
    if plot_file is not None:
        from localspec.entmtp.plot import plot_bank

        plot_bank(stored, plot_file)
