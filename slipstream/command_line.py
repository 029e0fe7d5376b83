"""What the command lines of the services share: options, the log, how a mistake is told. Knows no service."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from slipstream.config import DTYPES

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

Listen = Annotated[str, typer.Option(help="host:port to serve on; port 0 takes any.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Dtype = Annotated[str, typer.Option(help=f"One of {', '.join(DTYPES)}.")]
MaxModelLen = Annotated[int, typer.Option(help="Positions; 0 is what the model has.")]
BlockSize = Annotated[int, typer.Option(help="Tokens per KV block.")]
NumKvBlocks = Annotated[int, typer.Option(help="KV blocks; 0 is what --kv-memory-mib holds.")]
KvMemoryMib = Annotated[int, typer.Option(help="Memory of the KV cache, MiB.")]
MaxNumBatchedTokens = Annotated[int, typer.Option(help="Most tokens fed in one step.")]
NumThreads = Annotated[int, typer.Option(help="CPU threads of the math library.")]
LogLevel = Annotated[str, typer.Option(help=f"One of {', '.join(LOG_LEVELS)}.")]


def configure_log(level: str) -> None:
    if level not in LOG_LEVELS:
        raise ValueError(f"log-level is {level!r}; it must be one of {', '.join(LOG_LEVELS)}")
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")


@contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """A bad value ends the process with exit code 2 and one line on stderr."""
    try:
        yield
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
