"""`python -m backend tree DIR`, `sources DIR` and `refresh DIR`, in the folder ggml_patches."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import dev
from .errors import told_in_one_line
from .pins import PACKAGE


@told_in_one_line
def main() -> None:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(prog="python -m backend", description="Work on localspec's patches to llama.cpp.")
    commands = parser.add_subparsers(dest="command", required=True)
    tree = commands.add_parser("tree", help="make the patched sources in DIR, one commit per patch")
    sources = commands.add_parser("sources", help="make the patched sources in DIR; needs no git")
    refresh = commands.add_parser("refresh", help="write patches/ and src/ from the commits in DIR")
    for command in (tree, sources, refresh):
        command.add_argument("folder", metavar="DIR", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "tree":
        dev.make_tree(PACKAGE, arguments.folder.absolute())
    elif arguments.command == "sources":
        dev.make_sources(PACKAGE, arguments.folder.absolute())
    else:
        dev.refresh(PACKAGE, arguments.folder.absolute())


if __name__ == "__main__":
    main()
