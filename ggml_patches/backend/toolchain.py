"""Which compilers will be used, what they and this machine are, and the environment for CMake.

The default build is tuned to this CPU (-march=native), and a CUDA build to this GPU: both belong to what a wheel is.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cache import Settings
from .errors import BuildError

# The names that CMake tries, in its order, and the variables that override them.
_COMPILERS = {"C": ("CC", ("cc", "gcc", "cl", "clang")), "CXX": ("CXX", ("c++", "g++", "cl", "clang++"))}
_OTHER_LANGUAGES = {"CUDA": "GGML_CUDA", "HIP": "GGML_HIP"}
_DEFINITION = re.compile(r"(?P<name>\w+)(?::\w+)?=(?P<value>.*)", re.DOTALL)
_INSTALL = {
    "darwin": "install one with: xcode-select --install",
    "win32": 'install "Build Tools for Visual Studio" with the workload "Desktop development with C++"',
}
_INSTALL_ELSEWHERE = "install one, for instance with: sudo apt install g++ (Fedora: sudo dnf install gcc-c++)"


def definitions(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """CMake definitions that the user gives: `-DNAME=VALUE` in CMAKE_ARGS, and `cmake.define.NAME` settings."""
    try:
        words = shlex.split(environ.get("CMAKE_ARGS", ""))
    except ValueError as error:
        raise BuildError(f"CMAKE_ARGS cannot be read ({error})", "check its quotes") from error
    found: dict[str, str] = {}
    for before, word in zip(["", *words], words, strict=False):
        text = word.removeprefix("-D") if word.startswith("-D") else word if before == "-D" else ""
        if match := _DEFINITION.fullmatch(text):
            found[match["name"]] = match["value"]
    for name, value in settings.items():
        if name.startswith("cmake.define."):
            found[name.removeprefix("cmake.define.")] = str(value)
    return found


def is_on(defined: Mapping[str, str], name: str) -> bool:
    """Whether CMake takes the definition for true."""
    return defined.get(name, "").upper() in ("1", "ON", "TRUE", "YES", "Y")


def toolchain(environ: Mapping[str, str], defined: Mapping[str, str]) -> dict[str, str]:
    """Language -> path and version of its compiler. Raises BuildError when there is no C or C++ compiler."""
    file = defined.get("CMAKE_TOOLCHAIN_FILE") or environ.get("CMAKE_TOOLCHAIN_FILE")
    if file:  # it chooses the compilers; only CMake can read it
        path = Path(file)
        return {"toolchain file": path.read_text(encoding="utf-8", errors="replace") if path.is_file() else file}
    found = {language: _compiler(language, environ, defined) for language in _COMPILERS}
    if is_on(defined, "GGML_CUDA"):
        found["CUDA"] = _cuda(environ, defined)
    return found


def _compiler(language: str, environ: Mapping[str, str], defined: Mapping[str, str]) -> str:
    variable, usual = _COMPILERS[language]
    asked = defined.get(f"CMAKE_{language}_COMPILER") or environ.get(variable)
    for command in [asked] if asked else usual:
        identity = _identity(shlex.split(command, posix=sys.platform != "win32"), environ)
        if identity:
            return identity
    if not asked and sys.platform == "win32" and (studio := _visual_studio(environ)):
        return studio
    name = "C++" if language == "CXX" else language
    if asked:
        raise BuildError(
            f"the {name} compiler {asked!r} was not found or does not run", f"check {variable} and CMAKE_ARGS"
        )
    tried = ", ".join(usual)
    raise BuildError(f"no {name} compiler found (tried {tried})", _INSTALL.get(sys.platform, _INSTALL_ELSEWHERE))


def _identity(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Resolved path and version text of a compiler; None when it does not run."""
    path = shutil.which(command[0], path=environ.get("PATH")) if command else None
    if path is None:
        return None
    is_msvc = Path(path).stem.lower() == "cl"  # prints its version when it is given nothing to do
    text = _output([path, *command[1:], *([] if is_msvc else ["--version"])], environ)
    return f"{Path(path).resolve()} {' '.join(command[1:])} {text}" if text else None


def _cuda(environ: Mapping[str, str], defined: Mapping[str, str]) -> str:
    """nvcc and the GPUs that it will compile for. CMake itself tells when there is no nvcc."""
    places = [environ[name] for name in ("CUDA_PATH", "CUDA_HOME", "CUDAToolkit_ROOT") if environ.get(name)]
    candidates = [defined.get("CMAKE_CUDA_COMPILER"), environ.get("CUDACXX"), "nvcc"]
    candidates += [str(Path(place) / "bin" / "nvcc") for place in (*places, "/usr/local/cuda")]
    found = (_identity([command], environ) for command in candidates if command)
    nvcc = next((identity for identity in found if identity), "unknown")
    gpus = _output(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], environ) or ""
    return f"{nvcc} for {sorted(set(gpus.split()))}"


def _visual_studio(environ: Mapping[str, str]) -> str | None:
    """Version of a Visual Studio with C++ tools: CMake finds it without its being on PATH."""
    folder = environ.get("ProgramFiles(x86)")
    if not folder:
        return None
    command = [str(Path(folder) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"), "-latest", "-products", "*"]
    command += ["-requires", "Microsoft.VisualStudio.Component.VC.Tools.x86.x64", "-property", "installationVersion"]
    return _output(command, environ)


def _output(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """What a program prints; None when it is missing, fails, or prints nothing."""
    try:
        result = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None


def machine() -> dict[str, str]:
    """What -march=native and the wheel's platform tag depend on."""
    return {"platform": sysconfig.get_platform(), "machine": platform.machine(), "cpu": _cpu()}


def _cpu() -> str:
    if sys.platform == "darwin":
        names = ("machdep.cpu.brand_string", "machdep.cpu.features", "machdep.cpu.leaf7_features", "hw.optional")
        return "\n".join(_output(["sysctl", name], os.environ) or "" for name in names)
    information = Path("/proc/cpuinfo")
    if not information.is_file():
        return f"{platform.processor()} {os.environ.get('PROCESSOR_IDENTIFIER', '')}"
    wanted = re.compile(r"(flags|Features|isa|CPU implementer|CPU part|cpu family|model|cpu)\s*:")
    lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(sorted({line for line in lines if wanted.match(line)}))


def build_environment(environ: Mapping[str, str], defined: Mapping[str, str], work: Path) -> dict[str, str]:
    """The environment for CMake: the user's own, with ccache and all CPUs unless the user says otherwise.

    `work` holds the sources and the build: ccache sees paths relative to it.
    """
    arguments = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in _launched(environ, defined)]
    built = dict(environ)
    # the user's arguments come last: they win
    built["CMAKE_ARGS"] = " ".join([*arguments, environ.get("CMAKE_ARGS", "")]).strip()
    built.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(cpu_count()))
    built.setdefault("CCACHE_BASEDIR", str(work))
    built.setdefault("CCACHE_NOHASHDIR", "1")
    # llama.cpp asks git for its commit: never that of a repository around the cache directory
    built["GIT_CEILING_DIRECTORIES"] = str(work)
    return built


def _launched(environ: Mapping[str, str], defined: Mapping[str, str]) -> list[str]:
    """Languages for which ccache is put before the compiler."""
    off = "GGML_CCACHE" in defined and not is_on(defined, "GGML_CCACHE")
    if off or shutil.which("ccache", path=environ.get("PATH")) is None:
        return []
    languages = [*_COMPILERS, *(language for language, switch in _OTHER_LANGUAGES.items() if is_on(defined, switch))]
    launchers = {language: f"CMAKE_{language}_COMPILER_LAUNCHER" for language in languages}
    # one launcher of the user's own means that the user has made a choice for all of them
    if any(name in defined or name in environ for name in launchers.values()):
        return []
    return list(launchers)


def cpu_count() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
