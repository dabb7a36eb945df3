"""Facts about this machine and the installed native library: for reports, and to tell one build from another."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from localspec.errors import EngineError

#: what llama.cpp calls a CPU feature -> what Linux calls it
FEATURES = {
    "SSE3": "pni",
    "SSSE3": "ssse3",
    "AVX": "avx",
    "AVX_VNNI": "avx_vnni",
    "AVX2": "avx2",
    "F16C": "f16c",
    "FMA": "fma",
    "BMI2": "bmi2",
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
    "AMX_INT8": "amx_int8",
    "NEON": "asimd",
    "ARM_FMA": "asimd",
    "FP16_VA": "asimdhp",
    "DOTPROD": "asimddp",
    "MATMUL_INT8": "i8mm",
    "SVE": "sve",
    "SVE2": "sve2",
    "SME": "sme",
}


@dataclass(frozen=True, slots=True)
class Device:
    """One compute device of the native library; memory in bytes, 0 where it is unknown."""

    name: str
    description: str
    memory_free: int
    memory_total: int


@dataclass(frozen=True, slots=True)
class Library:
    """The installed native library. `abi` is the interface of the localspec patches, None for a stock build."""

    version: str
    path: Path
    abi: int | None
    features: tuple[str, ...]
    system_info: str
    gpu_offload: bool

    @property
    def build(self) -> str:
        """Version and kind, for people."""
        return f"llama-cpp-python {self.version}, " + ("stock" if self.abi is None else f"patched (abi {self.abi})")


def load_native() -> None:
    """Load the native library. Raises `EngineError` when that fails; whatever imports it comes after this."""
    try:
        import llama_cpp.llama_cpp  # noqa: F401
    except Exception as error:  # a missing file, a missing symbol, a wrong architecture: each has its own kind
        raise EngineError(
            f"the native library cannot be loaded: {error or type(error).__name__}",
            "install it again: pip install ./ggml_patches",
        ) from error


@cache
def library() -> Library:
    """The native library; loads it. Raises `EngineError` when that fails."""
    load_native()
    import llama_cpp
    from llama_cpp import llama_cpp as L

    from localspec.engine import bindings, logs

    logs.install()
    info = L.llama_print_system_info().decode("utf-8", "replace").strip(" |")
    on = tuple(item.split(" = ")[0].split()[-1] for item in info.split("|") if item.strip().endswith("= 1"))
    return Library(
        version=llama_cpp.__version__,
        path=Path(llama_cpp.__file__).parent,
        abi=None if bindings.library() is None else bindings.ABI,
        features=on,
        system_info=info,
        gpu_offload=bool(L.llama_supports_gpu_offload()),
    )


@cache
def library_id() -> str:
    """A digest that changes with every build of the native library."""
    lib = library()
    parts = [lib.version, str(lib.abi), lib.system_info]
    for path in sorted((lib.path / "lib").glob("*")):
        stat = path.stat()
        parts.append(f"{path.name} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def lacking_features() -> list[str]:
    """What the native library uses and this CPU lacks, by llama.cpp's names; empty where the system does not tell."""
    features = cpu_features()
    return [] if features is None else sorted((set(library().features) & set(FEATURES)) - features)


def refuse_unfit_library() -> None:
    """Raise `EngineError` when this CPU would end the process with an illegal instruction."""
    if lacking := lacking_features():
        raise EngineError(
            f"the native library uses {', '.join(lacking)}, which this CPU lacks",
            "build it on this machine: pip install ./ggml_patches",
        )


def gpus() -> list[str]:
    """Descriptions of the devices other than the CPU."""
    return [device.description for device in devices() if device.name not in ("CPU", "BLAS")]


def devices() -> list[Device]:
    """The devices that the library was built for and found; empty when it does not tell."""
    from llama_cpp import llama_cpp as L

    library()
    try:
        count, get = L._lib.ggml_backend_dev_count, L._lib.ggml_backend_dev_get
        name, description = L._lib.ggml_backend_dev_name, L._lib.ggml_backend_dev_description
        memory = L._lib.ggml_backend_dev_memory
    except AttributeError:
        return []
    count.restype, count.argtypes = ctypes.c_size_t, []
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    description.restype, description.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    size_p = ctypes.POINTER(ctypes.c_size_t)
    memory.restype, memory.argtypes = None, [ctypes.c_void_p, size_p, size_p]
    found = []
    for i in range(count()):
        device, free, total = get(i), ctypes.c_size_t(), ctypes.c_size_t()
        memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(Device(_text(name(device)), _text(description(device)), free.value, total.value))
    return found


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace").strip()


@cache
def cpu_name() -> str:
    """The processor's own name, or its architecture."""
    if platform.system() == "Darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    for line in _cpuinfo():
        if line.startswith(("model name", "Hardware")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def cpu_features() -> frozenset[str] | None:
    """The features of this CPU under llama.cpp's names; None where the system does not tell (outside Linux)."""
    for line in _cpuinfo():
        if line.startswith(("flags", "Features")):
            flags = set(line.partition(":")[2].split())
            if "neon" in flags:  # the 32-bit name
                flags.add("asimd")
            return frozenset(feature for feature, flag in FEATURES.items() if flag in flags)
    return None


def machine() -> dict[str, Any]:
    """What a report of measurements has to name."""
    return {
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
