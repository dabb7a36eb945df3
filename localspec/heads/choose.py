"""Which draft heads a model gets: those that the user names, else those that come with localspec for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from localspec.engine.model import Model
from localspec.errors import ModelError, UsageError
from localspec.heads.base import base_facts, base_fingerprint
from localspec.heads.file import read_spec
from localspec.heads.spec import MEDUSA, HeadSpec, check_base

#: the two kinds of heads that a model may have side by side
HYDRA_KIND, MEDUSA_KIND = "hydra", "medusa"


def kind_of(spec: HeadSpec) -> str:
    """Whether such heads see the tokens drafted before them ("hydra") or not ("medusa")."""
    return MEDUSA_KIND if spec.arch == MEDUSA or not spec.grounded else HYDRA_KIND


def choose_heads(model: Model, files: Sequence[Path] = ()) -> dict[str, Path]:
    """The file of each kind of heads for `model`, by kind: `files`, then what comes with localspec.

    Raises `UsageError` for two files of one kind and for heads with a prefix layer, `ModelNotFoundError` and
    `ModelError` for a file that cannot be used or that was made for another model.
    """
    chosen: dict[str, Path] = {}
    for path in files:
        spec = read_spec(path)
        check_base(spec, base_facts(model))
        if spec.prefix is not None:
            # they want that layer's output, which no context keeps: drafts from the model's own state would be useless
            raise UsageError(
                f"{path} has a prefix layer, and such heads cannot draft here yet", "use heads without one"
            )
        kind = kind_of(spec)
        if kind in chosen:
            raise UsageError(f"{path} and {chosen[kind]} are both {kind} heads", "name one of them")
        chosen[kind] = path
    return shipped_for(model.path, model.n_embd, model.n_vocab) | chosen


def shipped_for(model: Path, n_embd: int, n_vocab: int) -> dict[str, Path]:
    """The heads that come with localspec for the very model in the file `model`, by kind."""
    found: dict[str, Path] = {}
    for path, spec in shipped_heads():
        if (spec.n_embd, spec.n_vocab) != (n_embd, n_vocab) or not spec.base_fingerprint:
            continue
        if base_fingerprint(model, n_vocab) == spec.base_fingerprint:
            found.setdefault(kind_of(spec), path)
    return found


def shipped_heads() -> Iterator[tuple[Path, HeadSpec]]:
    """The heads that come with localspec. Files that cannot be read are passed over: nothing may depend on them."""
    folder = resources.files("localspec.heads") / "shipped"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name) if folder.is_dir() else ():
        if entry.name.endswith(".gguf") and isinstance(entry, Path):
            try:
                yield entry, read_spec(entry)
            except ModelError:
                continue
