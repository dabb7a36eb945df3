"""Pictures of the chat for the README, of the real app with a real model.

    python benchmarks/chat_pictures.py [MODEL] [--folder docs] [--question TEXT] [--method auto]

The app runs without a terminal. It is asked a question, and when it has written for a while it is held at a step in
which a part of a tree was taken; that screen is kept as `chat.svg`, and what a terminal of 80 columns shows then as
`chat-narrow.svg`.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

from localspec.tui.app import ChatApp, Start
from localspec.tui.backend import Failed, ModelInfo, OpenRequest
from localspec.tui.config import Config

QUESTION = "Write a Python class for a queue with push, pop and len, and a short test for each of them."
WIDE, NARROW = (112, 36), (80, 24)
#: drafts taken and made in a step that is worth showing
LEAST_TAKEN, LEAST_DRAFTED = 2, 7


class Pictured(ChatApp):
    CSS_PATH = Path(inspect.getfile(ChatApp)).with_name("app.tcss")  # else it is looked for here


async def take(args: argparse.Namespace) -> None:
    from localspec.worker import SessionWorker

    worker = SessionWorker()
    config = Config(sampling={"temperature": 0.0, "max_tokens": args.tokens}, theme=args.theme)
    app = Pictured(worker, config, None, Start(OpenRequest(args.model, args.method)))
    try:
        async with app.run_test(size=WIDE) as pilot:
            while not isinstance(state := worker.state, ModelInfo):
                if isinstance(state, Failed):
                    raise SystemExit(state.message)
                await asyncio.sleep(0.1)
            await pilot.pause()
            app.prompt.put(args.question)
            app.action_send()
            # the answer is waited for, so that its speed is not that of taking pictures
            while app.answers.writing:
                await asyncio.sleep(0.1)
            app.prompt.blur()
            await _walk_to_a_tree(app, pilot)
            _keep(app, args.folder / "chat.svg")
            await pilot.press("space")
            await pilot.resize_terminal(*NARROW)
            await pilot.pause(0.5)
            _keep(app, args.folder / "chat-narrow.svg")
    finally:
        worker.close()


async def _walk_to_a_tree(app: ChatApp, pilot: Any) -> None:
    """Pause, and step back to a step whose tree was taken in part."""
    await pilot.press("space")
    live = app.board.live
    n = live.snapshot(0).n_kept
    good = [at for at in range(n) if _is_good(live.snapshot(at).step)]
    for _ in range(good[len(good) // 2] if good else 0):
        await pilot.press("left")
    await pilot.pause(0.5)


def _is_good(step: Any) -> bool:
    n_drafted = len(step.texts) - 1
    branches = len(set(step.parents)) < n_drafted
    return bool(LEAST_TAKEN <= len(step.path) < n_drafted and n_drafted >= LEAST_DRAFTED and branches)


def _keep(app: ChatApp, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # whoever shows a picture should not fetch fonts from somewhere for it
    picture = re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(title="localspec chat"), flags=re.DOTALL)
    path.write_text(picture.replace("Fira Code, monospace", "monospace"), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--theme", default="localspec-dark")
    parser.add_argument("--tokens", type=int, default=300)
    asyncio.run(take(parser.parse_args()))
