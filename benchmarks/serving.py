"""Speed of `localspec serve` with several users at once, and of llama.cpp's server on the same model.

    python benchmarks/serving.py MODEL --llama-server BUILD/bin/llama-server [--draft MODEL] [-o serving.json]
        [--sides localspec,localspec:off,llama.cpp,llama.cpp:ngram-mod] [--users 1,2,4,8] [--rounds 3]

A side is a server and how it speculates:

    localspec[:METHOD]  `localspec serve`, asked for METHOD (auto, off, ptd, lookup, ...; draft takes --draft)
    llama.cpp[:TYPE]    llama-server with --spec-type TYPE (ngram-simple, ngram-mod, draft-simple, ...; the latter takes
                        --draft), or without speculation
    stock[:TYPE]        the same with llama.cpp's own CPU kernels (GGML_CPU_ROW_KERNELS=0)
    NAME=URL[:METHOD]   a server that runs already; not started afresh, so its caches may know the prompts

Every side is a process of its own, started anew for each number of users k, with k slots of as much context each. The
load is a closed loop: each of the k users asks for a next answer when the last one is complete, until a round's prompts
are used up. Sides take turns round by round, and no prompt is asked twice of a process, so neither a prompt cache nor
a drafter that learns has seen it. Answers are greedy, streamed, and of 128 tokens at most.

llama-server built from the patched sources has the same kernels as localspec (in the folder ggml_patches):

    python -m backend tree TREE
    cmake -S TREE/vendor/llama.cpp -B BUILD -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \\
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \\
        -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
    ninja -C BUILD llama-server

The client takes processor time too, the same for all sides: it keeps what comes as bytes and reads it afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from serving_sides import Side, served

from localspec import machine
from localspec.bench.prompts import Prompt, own_prompts
from localspec.hub import find_model


@dataclass(frozen=True)
class Answer:
    """One answer: `first` is the time to its first text and `seconds` that to its end; `steps` are passes that wrote
    it."""

    prompt: str
    task: str
    first: float
    seconds: float
    n_prompt: int
    n_tokens: int
    drafted: int
    accepted: int
    reason: str
    text: str

    @property
    def steps(self) -> int:
        return max(1, self.n_tokens - self.accepted)


@dataclass(frozen=True)
class Load:
    """A round of one side with `users` at once."""

    side: str
    users: int
    round: int
    seconds: float
    answers: list[Answer]

    @property
    def tokens_per_second(self) -> float:
        return sum(answer.n_tokens for answer in self.answers) / self.seconds


async def ask(client: httpx.AsyncClient, side: Side, prompt: Prompt, max_tokens: int) -> Answer:
    """One answer, streamed."""
    body = {
        "messages": [{"role": "user", "content": prompt.text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        **side.speculation,
    }
    start = perf_counter()
    chunks: list[tuple[float, bytes]] = []
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for chunk in response.aiter_raw():
                chunks.append((perf_counter() - start, chunk))
    except httpx.TransportError as error:
        sys.exit(f"{side.name}: {type(error).__name__}: {error}")
    if response.status_code != httpx.codes.OK:
        sys.exit(f"{side.name}: {b''.join(chunk for _, chunk in chunks).decode(errors='replace')}")
    return read(side, prompt, chunks)


def read(side: Side, prompt: Prompt, chunks: Sequence[tuple[float, bytes]]) -> Answer:
    """What the chunks of a stream say, and when."""
    first, text, reason, last = None, "", "", {}
    timings: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for at, line in lines(chunks):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        last = json.loads(line[6:])
        timings, usage = last.get("timings") or timings, last.get("usage") or usage
        for choice in last.get("choices", ()):
            text += choice["delta"].get("content") or ""
            reason = choice.get("finish_reason") or reason
        if text and first is None:
            first = at
    if not usage or first is None:
        sys.exit(f"{side.name}: the stream ended with {last}")
    drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    counts = usage["prompt_tokens"], usage["completion_tokens"], drafted, accepted
    return Answer(prompt.id, prompt.task, first, chunks[-1][0], *counts, reason, text)


def lines(chunks: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The lines of a stream, each with the time at which it was complete."""
    rest = b""
    for at, chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield at, line.rstrip(b"\r")


async def load(side: Side, url: str, prompts: Sequence[Prompt], users: int, max_tokens: int) -> tuple[float, Any]:
    """Have `users` ask all prompts, each one after the other; returns the seconds and the answers."""
    waiting, answers = deque(prompts), []
    # a connection for each request: servers may close one that waits, just as it is used again
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:

        async def user() -> None:
            while waiting:
                answers.append(await ask(client, side, waiting.popleft(), max_tokens))

        start = perf_counter()
        await asyncio.gather(*(user() for _ in range(users)))
        return perf_counter() - start, answers


def rounds(sides: Sequence[Side], users: int, args: argparse.Namespace) -> Iterator[Load]:
    """All rounds of all sides with so many users."""
    by_task = [[p for p in own_prompts() if p.task == task] for task in args.tasks]
    mixed = [prompt for row in zip_longest(*by_task) for prompt in row if prompt is not None]
    warm_up = [Prompt("", "", f"Count from {i} to {i + 20}.") for i in range(users)]
    with ExitStack() as stack:
        urls = {side: stack.enter_context(served(side, args, users)) for side in sides}
        for side, url in urls.items():
            asyncio.run(load(side, url, warm_up, users, 16))
        for turn in range(args.rounds):
            prompts = mixed[turn * args.prompts : (turn + 1) * args.prompts]
            shift = turn % len(sides)
            order = [*sides[shift:], *sides[:shift]]
            for side in order[::-1] if turn % 2 else order:
                seconds, answers = asyncio.run(load(side, urls[side], prompts, users, args.max_tokens))
                yield Load(side.name, users, turn, seconds, answers)


def row(loads: Sequence[Load], base: Sequence[Load]) -> dict[str, Any]:
    """The figures of one side with one number of users; ratios are to the same round of `base`."""
    answers = [answer for load in loads for answer in load.answers]
    first = sorted(answer.first for answer in answers)
    ratios = [mine.tokens_per_second / other.tokens_per_second for mine, other in zip(loads, base, strict=True)]
    texts = {answer.prompt: answer.text for load in base for answer in load.answers}
    writing = [a.n_tokens / (a.seconds - a.first) for a in answers if a.n_tokens > 1 and a.seconds > a.first]
    return {
        "side": loads[0].side,
        "users": loads[0].users,
        "tokens_per_second": statistics.median(load.tokens_per_second for load in loads),
        "tokens_per_second_rounds": [load.tokens_per_second for load in loads],
        "ratio": statistics.median(ratios),
        "ratio_rounds": ratios,
        "ttft": statistics.median(first),
        "ttft_p90": first[min(len(first) - 1, int(0.9 * len(first)))],
        "tokens_per_second_user": statistics.median(writing),
        "tokens_per_step": sum(a.n_tokens for a in answers) / sum(a.steps for a in answers),
        "drafted_per_step": sum(a.drafted for a in answers) / sum(a.steps for a in answers),
        "accepted": sum(a.accepted for a in answers) / max(1, sum(a.drafted for a in answers)),
        "same": sum(a.text == texts[a.prompt] for a in answers),
        "answers": len(answers),
        "tokens": sum(a.n_tokens for a in answers),
    }


def tell(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    print(
        f"{'users':>5}  {'side':<24} {'tok/s':>7} {'ratio':>6} {'(rounds)':>13} {'each':>6} {'TTFT':>7} {'p90':>7} "
        f"{'tok/step':>8} {'drafts':>6} {'taken':>6} {'same':>7}"
    )
    for r in rows:
        spread = f"({min(r['ratio_rounds']):.2f} to {max(r['ratio_rounds']):.2f})"
        print(
            f"{r['users']:>5}  {r['side']:<24} {r['tokens_per_second']:>7.1f} {r['ratio']:>6.2f} {spread:>13} "
            f"{r['tokens_per_second_user']:>6.1f} {r['ttft']:>6.3f}s {r['ttft_p90']:>6.3f}s "
            f"{r['tokens_per_step']:>8.2f} {r['drafted_per_step']:>6.2f} {r['accepted']:>6.0%} "
            f"{r['same']:>3}/{r['answers']}"
        )


def set_up(args: argparse.Namespace) -> dict[str, Any]:
    """What was measured with what."""
    theirs = None
    if args.llama_server is not None:
        version = subprocess.run([args.llama_server, "--version"], capture_output=True, text=True, check=True)
        theirs = (version.stdout + version.stderr).strip().splitlines()
    return {
        "model": args.model.name,
        "draft": None if args.draft is None else args.draft.name,
        "threads": args.threads,
        "ctx_size": args.ctx_size,
        "flash_attention": True,
        "max_tokens": args.max_tokens,
        "prompts": args.prompts,
        "tasks": args.tasks,
        "rounds": args.rounds,
        "build": machine.library().build,
        "llama_server": theirs,
        "machine": machine.machine(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--localspec", default=str(Path(sys.executable).with_name("localspec")), help="its command")
    parser.add_argument("--draft", metavar="MODEL")
    parser.add_argument("--sides", help="with commas; ratios are to the first")
    parser.add_argument("--users", default="1,2,4,8", help="users at once, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=16, help="of a round")
    parser.add_argument("--tasks", default="code,edit,chat,math,summary,extraction")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx-size", type=int, default=2048, help="of a slot")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    args.model, args.tasks = find_model(args.model), args.tasks.split(",")
    args.draft = None if args.draft is None else find_model(args.draft)
    default = "localspec:off,localspec" + (",llama.cpp,llama.cpp:ngram-mod" if args.llama_server else "")
    sides = [Side.of(text) for text in (args.sides or default).split(",")]
    if args.rounds * args.prompts > sum(p.task in args.tasks for p in own_prompts()):
        sys.exit("there are not so many prompts: take fewer --rounds or --prompts, for none may be asked twice")

    loads: list[Load] = []
    rows: list[dict[str, Any]] = []
    for users in map(int, args.users.split(",")):
        loads += rounds(sides, users, args)
        by_side = {s.name: [x for x in loads if x.users == users and x.side == s.name] for s in sides}
        for of_side in by_side.values():
            of_side.sort(key=lambda load: load.round)
        new = [row(of_side, by_side[sides[0].name]) for of_side in by_side.values()]
        tell(new)
        rows += new
        if args.output is not None:
            data = {"set_up": set_up(args), "rows": rows, "loads": [asdict(load) for load in loads]}
            args.output.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
