"""Parameters of contexts and of sampling. Plain data: nothing here loads the native library."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from localspec.errors import UsageError

Mode = Literal["auto", "patched", "stock"]

DEFAULT_N_CTX = 8192

#: bounds of what the native structures hold, or of what makes sense at all
MAX_INT = 2**31 - 1
MAX_N_CTX = MAX_INT - 255  # the library rounds up to a multiple of 256
MAX_THREADS = 512
MAX_SEQUENCES = 256
MAX_TEMPERATURE = 1000.0
MAX_PENALTY = 1000.0
MAX_BIAS = 1e6

#: K/V cache types by name: (number of the type in ggml, bytes per element)
CACHE_TYPES: dict[str, tuple[int, float]] = {
    "f32": (0, 4.0),
    "f16": (1, 2.0),
    "bf16": (30, 2.0),
    "q8_0": (8, 34 / 32),
    "q5_1": (7, 24 / 32),
    "q5_0": (6, 22 / 32),
    "q4_1": (3, 20 / 32),
    "q4_0": (2, 18 / 32),
    "iq4_nl": (20, 18 / 32),
}


@dataclass(frozen=True, slots=True)
class ContextParams:
    """How a context is made.

    `n_ctx` counts the K/V cells of all sequences; 0 or None means the smaller of the model's training context
    and 8192. The library rounds it up to a multiple of 256. `n_threads` None means one a physical core;
    `n_threads_batch` None means `n_threads`. `hidden` makes `Rows.hidden` available. With `shared_cells` off each
    sequence has n_ctx / n_seq_max cells of its own, so that decoding many at once reads no cells of the others; stock
    mode always shares. `partitioned` shares one cache, of which each sequence fills its own part in order: many trees
    of any size are decoded in one pass, and what one sequence computes does not depend on the others. Stock mode, and
    models with a state, keep to the sizes of the parts alone.
    """

    n_ctx: int | None = None
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_threads: int | None = None
    n_threads_batch: int | None = None
    flash_attn: bool = True
    type_k: str = "f16"
    type_v: str = "f16"
    hidden: bool = False
    shared_cells: bool = True
    partitioned: bool = False
    mode: Mode = "auto"

    def validate(self) -> None:
        """Raise `UsageError` that names the first field with an unusable value."""
        _whole("n_ctx", self.n_ctx or 0, 0, MAX_N_CTX)
        for name in ("n_batch", "n_ubatch"):
            _whole(name, getattr(self, name), 1)
        _whole("n_seq_max", self.n_seq_max, 1, MAX_SEQUENCES)
        for name in ("n_threads", "n_threads_batch"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1, MAX_THREADS)
        for name in ("type_k", "type_v"):
            if getattr(self, name) not in CACHE_TYPES:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}, not a cache type", "one of " + ", ".join(CACHE_TYPES)
                )
        if not self.flash_attn and CACHE_TYPES[self.type_v][1] < 2:
            raise UsageError(
                f"type_v={self.type_v} needs flash attention: llama.cpp cannot read a quantised V cache without it",
                "set flash_attn=True or type_v=f16",
            )
        if self.mode not in ("auto", "patched", "stock"):
            raise UsageError(f"mode is {self.mode!r}", "one of auto, patched, stock")

    def resolve_n_ctx(self, n_ctx_train: int) -> int:
        """The number of cells to ask for, given the model's training context."""
        return self.n_ctx or min(n_ctx_train, DEFAULT_N_CTX)

    def resolve_threads(self) -> tuple[int, int]:
        """Threads for single tokens and for batches."""
        n_threads = self.n_threads or default_threads()
        return n_threads, self.n_threads_batch or n_threads


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a grammar begins with: a "word", a "pattern" (a regular expression, searched for; what its first group
    matched counts, if it has one), a "pattern_full" (all that was written so far), or a "token"."""

    kind: Literal["word", "pattern", "pattern_full", "token"]
    value: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How a model marks its thoughts. `begun` says that the prompt ends within them."""

    start: str
    ends: tuple[str, ...]
    begun: bool = False


@dataclass(frozen=True, slots=True)
class GrammarStart:
    """Where a grammar begins, if that is not where the answer does.

    With `triggers` everything is allowed until one of them was written outside of `thoughts`. Without, the grammar
    begins with the `prefill`: tokens that the prompt ends with.
    """

    triggers: tuple[Trigger, ...] = ()
    thoughts: Thoughts | None = None
    prefill: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampler chain of llama.cpp. Temperature 0 takes the best token after bias, penalties and grammar.

    `seed` None (or -1) draws a seed, which the sampler records. `repeat_last_n` -1 means the whole context; without
    `penalise_prompt` the penalties see the answer alone. `grammar`
    is GBNF with a rule named `root`; `json_schema` is a schema (a dict or its JSON text); at most one of the two.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    penalise_prompt: bool = True
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | str | None = None
    grammar_start: GrammarStart | None = None

    def validate(self) -> None:
        """Raise `UsageError` that names the first field with an unusable value."""
        _number("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _whole("top_k", self.top_k, 0)
        for name in ("top_p", "min_p", "typical_p"):
            _number(name, getattr(self, name), 0.0, 1.0)
        _number("repeat_penalty", self.repeat_penalty, 1e-6, MAX_PENALTY)
        for name in ("presence_penalty", "frequency_penalty"):
            _number(name, getattr(self, name), -MAX_PENALTY, MAX_PENALTY)
        _whole("repeat_last_n", self.repeat_last_n, -1)
        if self.seed is not None:
            _whole("seed", self.seed, -1, 2**64 - 1)
        for token, bias in self.logit_bias.items():
            _whole("logit_bias", token, 0)
            if bias != -math.inf:
                _number(f"logit_bias[{token}]", bias, -MAX_BIAS, MAX_BIAS)
        if self.grammar is not None and self.json_schema is not None:
            raise UsageError("grammar and json_schema exclude each other", "give one of them")
        if self.grammar_start is not None and not isinstance(self.grammar_start, GrammarStart):
            raise UsageError(f"grammar_start is {self.grammar_start!r}, not a GrammarStart")

    @property
    def penalised(self) -> bool:
        """Whether logits depend on the tokens so far."""
        neutral = self.repeat_penalty == 1.0 and self.presence_penalty == 0.0 and self.frequency_penalty == 0.0
        return not neutral and self.repeat_last_n != 0

    @property
    def greedy(self) -> bool:
        """Whether every draw is the plain argmax of the row."""
        return self.temperature == 0.0 and not self.penalised and not self.logit_bias and not self.constrained

    @property
    def constrained(self) -> bool:
        """Whether a grammar or a schema decides what may be written."""
        return self.grammar is not None or self.json_schema is not None


def check_gpu_layers(n_gpu_layers: int) -> None:
    """Raise `UsageError` unless the number of layers for the GPU is -1 (all) or more."""
    _whole("n_gpu_layers", n_gpu_layers, -1)


def _whole(name: str, value: object, minimum: int, maximum: int = MAX_INT) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}, not a whole number")
    if value < minimum:
        raise UsageError(f"{name} is {value}; it starts at {minimum}")
    if value > maximum:
        raise UsageError(f"{name} is {value}; it is at most {maximum}")


def _number(name: str, value: object, minimum: float, maximum: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{name} is {value!r}, not a finite number")
    if not minimum <= value <= maximum:
        raise UsageError(f"{name} is {value}; it is from {minimum:g} to {maximum:g}")


def default_threads() -> int:
    """One thread a physical core that this process may use: more make ggml's barriers spin against each other."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    if sys.platform == "darwin":
        return _performance_cores() or len(allowed)
    if not sys.platform.startswith("linux"):
        return max(1, len(allowed) // 2)
    cores = {_siblings(cpu) for cpu in allowed}
    return max(1, min(len(cores), _cpu_quota()))


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _cpu_quota() -> int:
    """Whole CPUs that a container's limit leaves; a large number when there is none."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            return max(1, int(quota) // int(period))
    return sys.maxsize


def _performance_cores() -> int | None:
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        command = ["/usr/sbin/sysctl", "-n", "hw.perflevel0.physicalcpu"]
        return int(subprocess.run(command, capture_output=True, check=True, timeout=5).stdout)
    return None


def available_memory() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
