"""What the terminal interface costs: answers written in the app against the same answers without one.

    python benchmarks/tui_cost.py [MODEL] [--method plain] [--tokens 256] [--rounds 10] [--threads N] [--size 120x40]

One process has the real app on a terminal of its own, with the real engine. In turns, it asks a question in the app,
and asks the same of the engine behind it while the screen stands still, from a fresh start each time. The answers are
greedy, so they are the same; each is timed from the end of its prompt to its end, in the engine's thread, with all that
the interface makes it wait. Prints the median ratio of the times per token with its quartiles, the same for the CPU
time of that thread (which grows as the interface empties its caches), the share of a core that the interface took
meanwhile, and what it takes while nothing goes on. On a machine that has other work, the last three can be trusted.

With another method than plain, trees go by the times that were measured, so that no two answers take the same steps:
the share of a core is what to look at then, or many rounds.

What the terminal itself costs is not in it: here it only reads, as one on another machine would.
"""

from __future__ import annotations

import argparse
import fcntl
import inspect
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

QUESTION = "Write a long story about a lighthouse keeper. Give it chapters, each with a list of what he sees."
IDLE_SECONDS = 5.0


class Clock:
    """Times generations from the end of the prompt to the last event, by the clock and by the thread's CPU time."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0
        self.n_tokens = self.n_steps = 0

    def watch(self, events: Iterator[Any]) -> Iterator[Any]:
        from localspec.events import DoneEvent, PromptEvent

        start, cpu = perf_counter(), thread_time()
        for event in events:
            if isinstance(event, PromptEvent):
                start, cpu = perf_counter(), thread_time()
            elif isinstance(event, DoneEvent):
                self.seconds, self.cpu = perf_counter() - start, thread_time() - cpu
                self.n_tokens, self.n_steps = event.stats.n_tokens, event.stats.n_steps
            yield event


def in_the_app(args: argparse.Namespace) -> None:
    """Run the app on this terminal, which measures itself and writes what it found to `args.results`."""
    import asyncio

    from localspec.engine.params import ContextParams, SamplingParams
    from localspec.tui.app import ChatApp
    from localspec.tui.backend import Failed, ModelInfo, OpenRequest, Question
    from localspec.tui.config import Config
    from localspec.tui.logbook import LogBook, guarded_screen
    from localspec.tui.start import Start
    from localspec.worker import SessionWorker

    clock = Clock()

    class Worker(SessionWorker):
        def _events(self, *what: Any) -> Iterator[Any]:
            return clock.watch(super()._events(*what))

    class Measured(ChatApp):
        CSS_PATH = Path(inspect.getfile(ChatApp)).with_name("app.tcss")  # else it is looked for here

        def on_ready(self) -> None:
            self.run_worker(self._measure())

        async def _measure(self) -> None:
            found: dict[str, Any] = {"rounds": []}
            while not isinstance(state := self.backend.state, ModelInfo):
                if isinstance(state, Failed):
                    raise SystemExit(state.message)
                await asyncio.sleep(0.1)
            found["model"], found["method"] = state.description, state.method
            for number in range(args.rounds + 1):
                arms = ("app", "bare") if number % 2 else ("bare", "app")
                times = {arm: await self._answer(arm) for arm in arms}
                if number:  # the first one warms up
                    found["rounds"].append(times)
            self.new_conversation()
            await asyncio.sleep(1.0)
            cpu = process_time()
            await asyncio.sleep(IDLE_SECONDS)
            found["idle"] = (process_time() - cpu) / IDLE_SECONDS
            Path(args.results).write_text(json.dumps(found), encoding="utf-8")
            self.exit()

        async def _answer(self, arm: str) -> dict[str, float]:
            self.backend.forget()
            self.new_conversation()
            await asyncio.sleep(0.5)  # whatever the last answer left to do
            before = thread_time()
            if arm == "app":
                self.prompt.put(QUESTION)
                self.action_send()
                while self.answers.writing:
                    await asyncio.sleep(0.2)
            else:
                question = Question([{"role": "user", "content": QUESTION}], {"temperature": 0.0}, args.tokens)
                answering = self.backend.ask(question)
                while not answering.done:
                    answering.take()
                    await asyncio.sleep(0.2)
            return {
                "per_token": clock.seconds / clock.n_tokens,
                "n_tokens": clock.n_tokens,
                "n_steps": clock.n_steps,
                "cpu": clock.cpu / clock.n_tokens,
                "share": (thread_time() - before) / clock.seconds,
            }

    book = LogBook()
    with guarded_screen(book):
        worker = Worker(SamplingParams(temperature=0.0))
        context = ContextParams(n_threads=args.threads)
        request = OpenRequest(args.model, args.method, options={"context": context})
        config = Config(sampling={"temperature": 0.0, "max_tokens": args.tokens}, panel=args.panel)
        try:
            Measured(worker, config, None, Start(request)).run()
        finally:
            worker.close()
    if not Path(args.results).stat().st_size:
        print("\n".join(line.text for line in book.lines()))


def on_a_terminal(command: Sequence[str], columns: int, rows: int) -> tuple[int, bytes]:
    """Run a command on a new terminal; returns how much it wrote there, and the end of that."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    n_bytes, end = 0, b""
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env) as child:
        os.close(slave)
        try:
            while data := os.read(master, 1 << 16):
                n_bytes, end = n_bytes + len(data), (end + data)[-4000:]
        except OSError:  # how Linux says that nobody is left
            pass
        child.wait()
    os.close(master)
    return n_bytes, end


def report(found: dict[str, Any], args: argparse.Namespace, n_bytes: int) -> None:
    """Print what was measured."""
    import numpy as np

    def middle(arm: str, name: str) -> float:
        return float(np.median([times[arm][name] for times in found["rounds"]]))

    def ratio(name: str) -> str:
        ratios = [times["app"][name] / times["bare"][name] for times in found["rounds"]]
        low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        return f"ratio {median:.3f} (quartiles {low:.3f} to {high:.3f})"

    n_tokens, n_steps = (middle("app", name) for name in ("n_tokens", "n_steps"))
    print(
        f"{found['model']}, {found['method']}, {args.threads or 'all'} threads, {args.size}, "
        f"{len(found['rounds'])} rounds of {n_tokens:.0f} tokens in {n_steps:.0f} steps"
    )
    print(f"without {1 / middle('bare', 'per_token'):.1f} tok/s, in the app {1 / middle('app', 'per_token'):.1f} tok/s")
    print(f"time per token: {ratio('per_token')}")
    print(f"CPU time of the engine's thread per token: {ratio('cpu')}")
    print(f"the interface took {middle('app', 'share'):.1%} of a core, without showing {middle('bare', 'share'):.1%}")
    print(f"idle: {found['idle']:.2%} of a core; {n_bytes / 1e6:.1f} MB were written to the terminal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--method", default="plain")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", default="120x40", help="columns x rows of the terminal")
    parser.add_argument("--panel", default="panel", choices=("off", "line", "panel"))
    parser.add_argument("--results", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.results:
        in_the_app(args)
        return
    columns, rows = map(int, args.size.split("x"))
    with tempfile.NamedTemporaryFile() as results:
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--results", results.name]
        n_bytes, end = on_a_terminal(command, columns, rows)
        written = Path(results.name).read_text(encoding="utf-8")
    if not written:
        sys.exit(f"the app did not come to an end:\n{end.decode('utf-8', 'replace')}")
    report(json.loads(written), args, n_bytes)


if __name__ == "__main__":
    main()
