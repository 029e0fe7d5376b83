"""What the command lines of the services share: options, how a mistake is reported. Knows no service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from slipstream import logs
from slipstream.config import ALL_REDUCE_METHODS, DTYPES, WIDE_SHAPES

Listen = Annotated[str, typer.Option(help="host:port to serve on; port 0: any free one.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Dtype = Annotated[str, typer.Option(help=f"One of {', '.join(DTYPES)}.")]
MaxModelLen = Annotated[int, typer.Option(help="Context length, tokens; 0: the model's.")]
BlockSize = Annotated[int, typer.Option(help="Tokens per KV block.")]
NumKvBlocks = Annotated[int, typer.Option(help="KV blocks; 0: as many as --kv-memory-mib holds.")]
KvMemoryMib = Annotated[int, typer.Option(help="Memory of the KV cache, MiB.")]
MaxNumBatchedTokens = Annotated[int, typer.Option(help="Most tokens fed in one step.")]
NumThreads = Annotated[int, typer.Option(help="CPU threads of the math library.")]
Widen = Annotated[
    str,
    typer.Option(
        help=f"Copy the model into a larger shape on load ({', '.join(WIDE_SHAPES)}): the same text at its cost."
    ),
]
CudaGraphs = Annotated[bool, typer.Option(help="On a GPU, replay captured steps; off changes nothing but speed.")]
GraphMemoryMib = Annotated[int, typer.Option(help="Most memory for captured steps, MiB.")]
TensorParallelSize = Annotated[
    int, typer.Option(help="Number of ranks that share the model: processes of this machine, or all of torchrun.")
]
AllReduce = Annotated[
    str, typer.Option(help=f"How GPUs of one machine add up: {' or '.join(ALL_REDUCE_METHODS)} (NCCL).")
]
LogLevel = Annotated[str, typer.Option(help=f"One of {', '.join(logs.LEVELS)}.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")]
TlsCert = Annotated[Path | None, typer.Option(help="PEM certificate of this server; without it no TLS.")]
TlsKey = Annotated[Path | None, typer.Option(help="PEM key of that certificate.")]
TlsClientCa = Annotated[
    Path | None, typer.Option(help="PEM CA whose certificates clients must show; without it none is asked for.")
]
MetricsListen = Annotated[
    str,
    typer.Option(help="host:port where Prometheus finds metrics (docs/metrics.md); port 0 takes any; empty: nowhere."),
]

OtlpEndpoint = Annotated[
    str,
    typer.Option(help="Collector of traces, OTLP over HTTP (docs/watching.md): http://host:4318; empty: none."),
]


@contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """A bad value ends the process with exit code 2 and one line on stderr."""
    try:
        yield
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
