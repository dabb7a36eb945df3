"""What banks are calibrated on: prompts written for this project, and files of the user's own.

They are none of the prompts that `localspec bench` measures with, nor of those that heads are trained on: heads know
their training text better than any other.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from localspec.bench.prompts import Prompt, parse_prompts, read_prompts, select
from localspec.errors import UsageError

#: the task of all prompts together
AUTO = "auto"
#: tasks that have prompts here
TASKS = ("chat", "code", "math")


def calibration_prompts(task: str, file: Path | None = None, limit: int | None = None) -> list[Prompt]:
    """The prompts of a task, at most `limit`; of all tasks for `AUTO`, at most `limit` each. `file` (JSON lines)
    takes the place of the own ones.

    Raises `UsageError` for a file that cannot be used and for a task without prompts.
    """
    if file is None:
        if task not in (*TASKS, AUTO):
            raise UsageError(
                f"there are no prompts to calibrate for {task!r}",
                f"--task is one of {', '.join((*TASKS, AUTO))}, or any task of a file given with --prompts",
            )
        text = (resources.files("localspec.entmtp") / "prompts.jsonl").read_text(encoding="utf-8")
        prompts = parse_prompts(text.split("\n"), "prompts.jsonl", "own")
    else:
        prompts = read_prompts(file)
    return select(prompts, () if task == AUTO else (task,), limit)
