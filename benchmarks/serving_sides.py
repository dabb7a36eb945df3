"""The servers that `serving.py` compares: how each is started, and told to speculate."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import httpx

#: seconds that a server may take until it is ready: a first start measures the cost curve
START = 180.0
OWN_KERNELS = {"GGML_CPU_ROW_KERNELS": "0"}


@dataclass(frozen=True)
class Side:
    """A server and how it speculates. `url` is that of one that runs already."""

    name: str
    kind: str
    mode: str
    url: str | None = None

    @classmethod
    def of(cls, text: str) -> Side:
        """Read a side as the command line has it."""
        if "=" in text:
            name, url = text.split("=", 1)
            base, _, mode = url.rpartition(":") if url.count(":") > 2 else (url, "", "")
            return cls(name, "url", mode, base.rstrip("/"))
        kind, _, mode = text.partition(":")
        if kind not in ("localspec", "llama.cpp", "stock"):
            sys.exit(f"there is no server {kind!r}: localspec, llama.cpp, stock, or NAME=URL")
        return cls(text, kind, mode)

    @property
    def speculation(self) -> dict[str, Any]:
        """What requests say of it: localspec is told there, llama.cpp when it starts."""
        return {"speculation": {"method": self.mode}} if self.mode and self.kind in ("localspec", "url") else {}


def command(side: Side, port: int, args: argparse.Namespace, users: int) -> list[str]:
    """The command line that starts the server of a side."""
    model, draft = str(args.model), str(args.draft)
    if side.kind == "localspec":
        words = [*shlex.split(args.localspec), "serve", "-m", model, "--port", str(port)]
        words += ["--parallel", str(users), "--ctx-size", str(args.ctx_size), "--threads", str(args.threads)]
        return words + (["--draft", draft] if side.mode in ("draft", "fly") else [])
    words = [str(args.llama_server), "-m", model, "--host", "127.0.0.1", "--port", str(port), "-np", str(users)]
    words += ["-c", str(users * args.ctx_size), "-t", str(args.threads), "-tb", str(args.threads), "-fa", "on"]
    words += ["--cache-ram", "0"]  # no prompt comes again: it would only cost time
    if side.mode:
        words += ["--spec-type", side.mode]
    return words + (["-md", draft] if side.mode.startswith("draft") else [])


@contextmanager
def served(side: Side, args: argparse.Namespace, users: int) -> Iterator[str]:
    """The URL of a side's server, which runs until the end of the block."""
    if side.url is not None:
        yield side.url
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | (OWN_KERNELS if side.kind == "stock" else {})
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command(side, port, args, users), stdout=log, stderr=log, env=environment)
        try:
            if not ready(url, process):
                log.seek(0)
                sys.exit(f"{side.name} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
            yield url
        finally:
            process.terminate()
            process.wait()


def ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a server is healthy; False when it ends or takes too long."""
    deadline = perf_counter() + START
    while perf_counter() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                return True
        except httpx.TransportError:
            pass
        sleep(0.1)
    return False
