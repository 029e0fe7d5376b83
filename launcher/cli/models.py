"""`slipstream model`: brings models to disk and makes draft models of them. Knows options; the work is elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launcher.cli.options import fetch_default_model, stop_on_sigterm

app = typer.Typer(no_args_is_help=True, help="Bring models to disk, and make draft models of them.")


@app.command()
def fetch() -> None:
    """Bring the default model (SmolLM2-135M-Instruct) to disk; at once if it is there."""
    stop_on_sigterm()
    print(fetch_default_model())


@app.command()
def derive(
    source: Annotated[Path, typer.Argument(help="The target's checkpoint folder.")],
    target: Annotated[Path, typer.Argument(help="Folder to create.")],
    layers: Annotated[int, typer.Option(help="Keep the first N layers.")] = 0,
    bits: Annotated[int, typer.Option(help="Round linear weights to this many bits.")] = 0,
) -> None:
    """Make a draft model of a target: fewer layers, or coarser weights."""
    if bool(layers) == bool(bits):
        raise ValueError("give either --layers or --bits")
    from slipstream.models import derive  # torch takes a second to load

    if layers:
        derive.truncate_layers(source, target, layers)
    else:
        derive.round_weights(source, target, bits=bits)
    print(target)
