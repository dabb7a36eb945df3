"""What there is to tell of a model, whether it is loaded or only a file: nothing is loaded to answer a list."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.fingerprint import file_fingerprint
from localspec.gguf_check import GgufInfo, Scalar, check_gguf
from localspec.serving.api import Available, Engine, Host

#: a template that has none of these does not write down that a model can think
_THINKING = ("<think>", "enable_thinking", "reasoning_content", "<|channel|>")


@dataclass(frozen=True, kw_only=True)
class About:
    """A model on this machine. What its file does not say is "", 0 or None.

    `digest` are 64 hex digits that stand for the content of the file. `n_ctx` is the context that one request has, None
    unless the model is loaded. `can_insert` says whether it can write between two texts. `metadata` has the scalar and
    string values of the file, without the chat template.
    """

    name: str
    size: int
    quant: str
    created: int
    loaded: bool
    role: str
    digest: str
    architecture: str = ""
    n_params: int = 0
    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_embd: int | None = None
    template: str = ""
    can_insert: bool = False
    metadata: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def context(self) -> int | None:
        """How many tokens a request and its answer can have, as far as is known."""
        return self.n_ctx or self.n_ctx_train

    @property
    def can_call_tools(self) -> bool:
        return "tools" in self.template

    @property
    def can_think(self) -> bool:
        return can_think(self.template)


def can_think(template: str) -> bool:
    """Whether a chat template is of a model that has thoughts apart from its answers."""
    return any(word in template for word in _THINKING)


async def models(host: Host) -> list[About]:
    """All models that can be asked for. The headers of files that it has not seen are read in a thread."""
    loaded = {engine.facts.name: engine for engine in host.loaded()}
    found = [(available, loaded.get(available.name)) for available in host.available()]
    return await asyncio.to_thread(lambda: [_about(available, engine) for available, engine in found])


def size_label(n_params: int) -> str:
    """A number of parameters as people write it: 134.5M, 3.2B."""
    for limit, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if n_params >= limit:
            return f"{n_params / limit:.1f}{unit}"
    return str(n_params) if n_params else ""


def _about(available: Available, engine: Engine | None) -> About:
    header, digest = _file(available)
    about = About(
        name=available.name,
        size=available.size,
        quant=available.quant,
        created=available.created,
        loaded=available.loaded,
        role=available.role,
        digest=digest,
    )
    if header is not None:
        about = _with_header(about, header)
    return about if engine is None else _with_engine(about, engine)


def _with_header(about: About, header: GgufInfo) -> About:
    metadata = dict(header.metadata)
    template = metadata.pop("tokenizer.chat_template", "")
    return replace(
        about,
        quant=about.quant or header.file_type or "",
        architecture=header.arch,
        n_params=header.n_params,
        n_ctx_train=header.n_ctx_train,
        n_embd=header.n_embd,
        template=template if isinstance(template, str) else "",
        can_insert=not {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"}.isdisjoint(metadata),
        metadata=metadata,
    )


def _with_engine(about: About, engine: Engine) -> About:
    facts = engine.facts
    return replace(
        about,
        architecture=facts.architecture,
        n_params=facts.n_params,
        n_ctx=facts.n_ctx,
        n_ctx_train=facts.n_ctx_train,
        n_embd=facts.n_embd,
        template=facts.chat_template,
        can_insert=engine.fim() is not None,
    )


def _file(available: Available) -> tuple[GgufInfo | None, str]:
    """The header of a model's file, if it can be read, and a digest."""
    try:
        stat = available.path.stat()
        return _read(available.path, stat.st_mtime_ns, stat.st_size)
    except (OSError, LocalspecError):
        return None, hashlib.sha256(f"{available.name}/{available.size}".encode()).hexdigest()


@lru_cache(maxsize=256)
def _read(path: Path, changed: int, size: int) -> tuple[GgufInfo, str]:
    # not the file's SHA-256, for which all of it would have to be read
    return check_gguf(path), hashlib.sha256(file_fingerprint(path).encode()).hexdigest()
