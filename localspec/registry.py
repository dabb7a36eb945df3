"""`models.txt`: the models that localspec knows by name, and the form of a hub reference `OWNER/REPO/FILE.gguf`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast, get_args

from localspec.errors import LocalspecError, UsageError

Role = Literal["target", "draft", "heads"]

COLUMNS = ("name", "role", "source", "file", "quant", "sha256", "licence", "pairs")
PACKAGE = "package:"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
# one part of a repository or file path; no separators, no drive letters, no leading dot: never a way out of a folder
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
# a name that Windows gives to a device whatever the extension
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubFile:
    """One GGUF file on the hub: `repo` is OWNER/REPO, `file` a path inside it."""

    repo: str
    file: str

    def __str__(self) -> str:
        return f"{self.repo}/{self.file}"

    @classmethod
    def parse(cls, text: str) -> HubFile:
        """`OWNER/REPO/FILE.gguf` (FILE may lie in folders). Raises `UsageError` for anything else."""
        parts = text.split("/")
        if len(parts) < 3 or not all(PART.fullmatch(part) and not DEVICE.match(part) for part in parts):
            raise UsageError(f"{text!r} is not a hub file", "write OWNER/REPO/FILE.gguf")
        if not parts[-1].lower().endswith(".gguf"):
            raise UsageError(f"{text!r} is not a GGUF file", "write OWNER/REPO/FILE.gguf")
        if SPLIT.search(parts[-1]):
            raise UsageError(f"{parts[-1]} is one part of a split model", "choose a repository that has it in one file")
        return cls("/".join(parts[:2]), "/".join(parts[2:]))


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One line of models.txt. `sha256` is None where it has not been verified."""

    name: str
    role: Role
    source: str
    file: str
    quant: str
    sha256: str | None
    licence: str
    #: names of entries that share the vocabulary and can draft for this one
    pairs: tuple[str, ...]

    @property
    def package(self) -> str | None:
        """The Python package that holds the file, for entries that are not on the hub."""
        return self.source.removeprefix(PACKAGE) if self.source.startswith(PACKAGE) else None

    @property
    def hub_file(self) -> HubFile | None:
        return None if self.package else HubFile(self.source, self.file)


class Registry:
    """The entries of a models.txt by name, in the order of the file."""

    def __init__(self, entries: dict[str, ModelEntry]) -> None:
        self._entries = entries

    @classmethod
    def load(cls, path: str | Path) -> Registry:
        """Parse and check a file. Raises `UsageError` that names the file and the line."""
        entries: dict[str, ModelEntry] = {}
        lines: dict[str, int] = {}
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}", "reinstall localspec") from error
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                entry = _parse_line(line)
                if entry.name in entries:
                    raise ValueError(f"the name {entry.name!r} is already used in line {lines[entry.name]}")
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: {error}", "its header explains the columns") from None
            entries[entry.name] = entry
            lines[entry.name] = number
        for entry in entries.values():
            for pair in entry.pairs:
                if pair not in entries or pair == entry.name:
                    raise UsageError(
                        f"{path}, line {lines[entry.name]}: {entry.name} is paired with {pair!r}, "
                        f"which is {'itself' if pair == entry.name else 'not in the file'}",
                        "its header explains the columns",
                    )
        return cls(entries)

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> ModelEntry | None:
        return self._entries.get(name.lower())

    def names(self) -> list[str]:
        return list(self._entries)

    def by_hub_file(self, ref: HubFile) -> ModelEntry | None:
        return next((entry for entry in self if entry.hub_file == ref), None)


def _parse_line(line: str) -> ModelEntry:
    """One entry. Raises ValueError with the reason."""
    fields = line.split()
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} columns where {len(COLUMNS)} are needed ({' '.join(COLUMNS)})")
    name, role, source, file, quant, sha256, licence, pairs = fields
    if not NAME.fullmatch(name):
        raise ValueError(f"the name {name!r} has other characters than a-z, 0-9, dot, dash and underscore")
    if role not in get_args(Role):
        raise ValueError(f"the role {role!r} is none of {', '.join(get_args(Role))}")
    if sha256 != "-" and not SHA256.fullmatch(sha256):
        raise ValueError(f"the sha256 {sha256!r} is neither 64 hexadecimal digits in lower case nor -")
    if source.startswith(PACKAGE):
        if not (PART.fullmatch(source.removeprefix(PACKAGE)) and PART.fullmatch(file)):
            raise ValueError(f"{source} {file} is not a file in a package")
    else:
        try:
            if HubFile.parse(f"{source}/{file}").repo != source:
                raise ValueError(f"the source {source!r} is not OWNER/REPO")
        except LocalspecError as error:
            raise ValueError(error.message) from None
    return ModelEntry(
        name=name,
        role=cast(Role, role),
        source=source,
        file=file,
        quant=quant,
        sha256=None if sha256 == "-" else sha256,
        licence=licence,
        pairs=() if pairs == "-" else tuple(pairs.split(",")),
    )


def models_txt() -> Path:
    """models.txt as installed inside the package, or at the root of the source tree for an editable install."""
    package = Path(__file__).resolve().parent
    inside = package / "models.txt"
    return inside if inside.is_file() else package.parent / "models.txt"


@cache
def registry() -> Registry:
    """The registry of this installation, read once."""
    return Registry.load(models_txt())
