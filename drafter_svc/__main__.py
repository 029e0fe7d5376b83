"""`python -m drafter_svc`: reads options and serves a drafter. Knows the command line."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from drafter_svc.config import DrafterConfig, default_max_rows
from drafter_svc.service import serve_drafter
from slipstream.config import EngineConfig
from slipstream.wire import server

_SWITCH_INTERVAL: Final = 5e-5  # seconds; at the default 5 ms the engine thread waits that long beside a busy loop

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    model: Annotated[
        Path, typer.Option(help="Folder of the draft model: Hugging Face, tokenizer included, or stored.")
    ],
    target_model: Annotated[
        Path | None, typer.Option(help="Folder of a stored draft's target; by default found by name.")
    ] = None,
    listen: Annotated[str, typer.Option(help="host:port to serve on; port 0 takes any.")] = "127.0.0.1:50052",
    proposer: Annotated[str, typer.Option(help="How to draft.")] = "draft_model",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "bfloat16",
    max_model_len: Annotated[int, typer.Option(help="Positions; 0 is what the model has.")] = 0,
    block_size: Annotated[int, typer.Option(help="Tokens per KV block.")] = 16,
    num_kv_blocks: Annotated[int, typer.Option(help="KV blocks; 0 is what --kv-memory-mib holds.")] = 0,
    kv_memory_mib: Annotated[int, typer.Option(help="Memory of the KV cache, MiB.")] = 512,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences open at once.")] = 64,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Most tokens fed in one step.")] = 512,
    max_rows: Annotated[int, typer.Option(help="Most paths drafted in one step; 0: 16 on a CPU, else 64.")] = 0,
    max_prefill_tokens: Annotated[int, typer.Option(help="Prompt tokens per step while others are drafted for.")] = 128,
    num_kept: Annotated[int, typer.Option(help="Tokens that the law of a draft token keeps.")] = 32,
    num_threads: Annotated[int, typer.Option(help="CPU threads of the math library.")] = 1,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serves slipstream.v1.Drafter: guesses the next tokens of open sequences ahead of need."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        _configure_log(log_level)
        config = DrafterConfig(
            engine=EngineConfig(
                model=model,
                target_model=target_model,
                device=device,
                dtype=dtype,
                max_model_len=max_model_len,
                block_size=block_size,
                num_kv_blocks=num_kv_blocks,
                kv_memory_bytes=kv_memory_mib << 20,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                num_threads=num_threads,
            ),
            listen=listen,
            proposer=proposer,
            max_rows=max_rows or default_max_rows(device),
            max_prefill_tokens=max_prefill_tokens,
            num_kept=num_kept,
        )
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    server.run(serve_drafter(config))


def _configure_log(level: str) -> None:
    known = ("debug", "info", "warning", "error")
    if level not in known:
        raise ValueError(f"log-level is {level!r}; it must be one of {', '.join(known)}")
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")


if __name__ == "__main__":
    app()
