"""A hub on loopback: the part of the Hugging Face protocol that a download uses, with faults on request.

HEAD and GET of /OWNER/REPO/resolve/REVISION/FILE with the hub's headers, Range and If-Range. A fault set by a test
holds for the requests that follow; every request is written down in `requests`.
"""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import numpy as np

REPO, FILE = "someone/Some-Model-GGUF", "some-model-q8_0.gguf"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_gguf(path: Path, n_weights: int = 64, seed: int = 0) -> bytes:
    """A small sound GGUF with every kind of metadata; returns its bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_token_list(["<s>", "a", "b", ""])
    writer.add_token_scores([0.0, 1.0, 2.0, 3.0])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_tensor("token_embd.weight", np.random.default_rng(seed).standard_normal(n_weights, dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def gguf_header(*, magic: bytes = b"GGUF", version: int = 3, n_tensors: int = 0, n_kv: int = 0) -> bytes:
    return magic + struct.pack("<IQQ", version, n_tensors, n_kv)


@dataclass
class Faults:
    """What goes wrong. Sizes in bytes of the body."""

    status: int | None = None
    error_code: str | None = None
    #: body bytes after which the connection is cut, one entry a GET
    cut_after: list[int] = field(default_factory=list)
    #: body bytes after which the answer stalls until `release` is set
    stall_after: int | None = None
    #: what the hub says the sha256 is, when it lies
    claimed_sha256: str | None = None
    ignore_range: bool = False
    ignore_if_range: bool = False
    redirect_to: str | None = None
    token: str | None = None


class FakeHub:
    """`with FakeHub() as hub:` serves until the end of the block. `endpoint` is its address."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults = Faults()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def put(self, content: bytes, repo: str = REPO, file: str = FILE) -> str:
        """Publish a file, or replace it; returns its sha256."""
        self.files[f"{repo}/{file}"] = content
        return hashlib.sha256(content).hexdigest()

    def ranges(self) -> list[str | None]:
        """The Range header of every GET so far."""
        return [headers.get("range") for method, _, headers in self.requests if method == "GET"]


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path)
            if match is None:
                return self.refuse(404, None)
            hub.requests.append((self.command, self.path, {key.lower(): value for key, value in self.headers.items()}))
            faults = hub.faults
            if faults.status:
                return self.refuse(faults.status, faults.error_code)
            if faults.token and self.headers.get("Authorization") != f"Bearer {faults.token}":
                return self.refuse(401, "RepoNotFound")
            content = hub.files.get(f"{match[1]}/{match[2]}")
            if content is None:
                return self.refuse(404, "EntryNotFound")
            return self.serve(content, body)

        def refuse(self, status: int, code: str | None) -> None:
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def serve(self, content: bytes, body: bool) -> None:
            faults = hub.faults
            sha256 = faults.claimed_sha256 or hashlib.sha256(content).hexdigest()
            etag = f'"{hashlib.md5(content).hexdigest()}"'  # the storage has etags of its own, as the real one
            start = self.start_of_range(etag, len(content)) if body else 0
            self.send_response(302 if faults.redirect_to else 206 if start else 200)
            if faults.redirect_to:
                self.send_header("Location", faults.redirect_to)
            self.send_header("ETag", etag)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Etag", f'"{sha256}"')
            self.send_header("X-Linked-Size", str(len(content)))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", "0" if faults.redirect_to else str(len(content) - start))
            self.end_headers()
            if body and not faults.redirect_to:
                self.send_body(content[start:])

        def start_of_range(self, etag: str, size: int) -> int:
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if asked is None or hub.faults.ignore_range or int(asked[1]) >= size:
                return 0
            condition = self.headers.get("If-Range")
            if condition not in (None, etag) and not hub.faults.ignore_if_range:
                return 0
            return int(asked[1])

        def send_body(self, body: bytes) -> None:
            cut = hub.faults.cut_after.pop(0) if hub.faults.cut_after else None
            stall = hub.faults.stall_after
            try:
                self.wfile.write(body[: cut if cut is not None else stall])
                self.wfile.flush()
                if stall is not None:
                    hub.release.wait(60)
                if cut is not None or stall is not None:
                    self.close_connection = True
                    return
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    return Handler
