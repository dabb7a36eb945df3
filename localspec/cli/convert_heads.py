"""`localspec convert-heads`: published Hydra and Medusa heads as a GGUF."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from localspec.cli.options import LogOptions, with_options

EPILOG = """Examples:

localspec convert-heads medusa-vicuna-7b-v1.3/ -o heads.gguf

localspec convert-heads hydra_lm_head.pt -o heads.gguf --type q4_0 --base vicuna-7b-v1.3.Q4_K_M.gguf

The config.json of the heads must lie beside their weights. A .pt file is read with torch: pip install torch
"""


def register(app: typer.Typer) -> None:
    app.command("convert-heads", epilog=EPILOG)(convert_heads)


@with_options
def convert_heads(
    logs: LogOptions,
    source: Annotated[
        Path, typer.Argument(help="Folder of published heads, or the .safetensors or .pt file in it.", metavar="SOURCE")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The GGUF to write.")],
    weight_type: Annotated[
        str, typer.Option("--type", help="Type of matrices: f32, f16, q8_0, q4_0, or q4_q8 (q4_0 in first blocks).")
    ] = "q8_0",
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="MODEL", help="Name or path of the GGUF that they are for; they refuse others."),
    ] = None,
    licence: Annotated[str, typer.Option("--license", help="Licence of the heads, to be kept in the file.")] = "",
) -> None:
    """Convert Hydra or Medusa heads to a GGUF."""
    logs.set_up()
    from localspec.cli.console import note
    from localspec.cli.models import size_text
    from localspec.heads.convert import convert, read_base
    from localspec.heads.file import check_weight_type, write_heads

    check_weight_type(weight_type)
    model = None
    if base is not None:
        from localspec.hub import find_model
        from localspec.machine import load_native

        load_native()
        model = read_base(find_model(base))
    heads = convert(source, model, licence)
    write_heads(output, heads, weight_type)
    spec = heads.spec
    made_for = spec.base_name or f"a model of width {spec.n_embd} with {spec.n_vocab} tokens"
    note(f"{spec.n_heads} {spec.arch} heads for {made_for}, {size_text(output.stat().st_size)}")
    sys.stdout.write(f"{output}\n")
