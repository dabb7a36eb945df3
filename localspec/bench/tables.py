"""The shape of the tables that tell figures by task and method."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def task_table(*figures: str) -> Table:
    """An empty table with columns for the task, the method and `figures`."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Task", no_wrap=True)
    table.add_column("Method", no_wrap=True)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table
