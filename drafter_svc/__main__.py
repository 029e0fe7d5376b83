"""`python -m drafter_svc`: reads options and serves a drafter. Knows the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from drafter_svc.config import DEFAULT_LISTEN, MANY, MOST_BRANCHES, AdapterSettings, DrafterConfig, default_max_rows
from drafter_svc.service import serve_drafter
from slipstream import command_line, logs
from slipstream.config import EngineConfig
from slipstream.wire import server
from slipstream.wire.tls import server_tls

_Model = Annotated[Path, typer.Option(help="Folder of the draft model: Hugging Face, tokenizer included, or stored.")]
_TargetModel = Annotated[
    Path | None,
    typer.Option(help="Folder of the target, for a stored draft or an EAGLE-3 head; a draft finds it by name."),
]
_AdaptersDir = Annotated[
    Path | None, typer.Option(help="Directory of adapters that may be loaded at run time; without it none may.")
]
_MaxBranches = Annotated[
    int, typer.Option(help="Most outcomes of a pass drafted for ahead; 0: verifier and drafter take turns.")
]
_MostAhead = Annotated[
    int, typer.Option(help="Draft ahead of commits while at most so many sequences are open; else take turns.")
]
_MaxPrefillTokens = Annotated[
    int, typer.Option(help="Most prompt tokens per step while other sequences are drafted for.")
]
_Adapters = Annotated[
    list[str] | None, typer.Option(help="NAME=FOLDER of an adapter to load at the start; repeatable.")
]
_DraftStep = Annotated[
    str, typer.Option(help="How a step is launched: auto (what is fastest), separate, fused or persistent.")
]
_MostDrafted = Annotated[int, typer.Option(help="Draft while at most so many sequences are open.")]
_LoopSteps = Annotated[
    int, typer.Option(help="On a GPU: most tokens of a path drawn in one captured loop; 0: one step at a time.")
]
_StopBelow = Annotated[
    float, typer.Option(help="End a path that is less likely than this to stand (T = 0 or coupled); 0: never.")
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    context: typer.Context,  # its `obj` takes the configuration instead, if there is one
    model: _Model,
    target_model: _TargetModel = None,
    listen: command_line.Listen = DEFAULT_LISTEN,
    proposer: Annotated[str, typer.Option(help="How to draft: draft_model, pard or eagle3.")] = "draft_model",
    device: command_line.Device = "cpu",
    dtype: command_line.Dtype = "bfloat16",
    max_model_len: command_line.MaxModelLen = 0,
    block_size: command_line.BlockSize = 16,
    num_kv_blocks: command_line.NumKvBlocks = 0,
    kv_memory_mib: command_line.KvMemoryMib = 512,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences open at once.")] = 64,
    max_num_batched_tokens: command_line.MaxNumBatchedTokens = 512,
    max_rows: Annotated[int, typer.Option(help="Most paths drafted in one step; 0: 16 on a CPU, else 64.")] = 0,
    max_prefill_tokens: _MaxPrefillTokens = 128,
    max_branches: _MaxBranches = MOST_BRANCHES,
    most_ahead: _MostAhead = MANY,
    most_drafted: _MostDrafted = MANY,
    stop_below: _StopBelow = 0.0,
    num_kept: Annotated[int, typer.Option(help="Tokens that a draft token's law keeps.")] = 32,
    loop_steps: _LoopSteps = 6,
    draft_step: _DraftStep = "auto",
    adapters_dir: _AdaptersDir = None,
    adapter: _Adapters = None,
    max_adapters: Annotated[int, typer.Option(help="Most adapters held at one time; memory is reserved for all.")] = 4,
    max_adapter_rank: Annotated[int, typer.Option(help="Highest rank of an adapter.")] = 16,
    num_threads: command_line.NumThreads = 1,
    tls_cert: command_line.TlsCert = None,
    tls_key: command_line.TlsKey = None,
    tls_client_ca: command_line.TlsClientCa = None,
    metrics_listen: command_line.MetricsListen = "",
    otlp_endpoint: command_line.OtlpEndpoint = "",
    log_level: command_line.LogLevel = "info",
    log_json: command_line.LogJson = False,
) -> None:
    """Serves slipstream.v1.Drafter: guesses the next tokens of open sequences ahead of need."""
    with command_line.mistakes_in_one_line():
        logs.configure(log_level, as_json=log_json)
        engine = EngineConfig(
            model=model, target_model=target_model, device=device, dtype=dtype, max_model_len=max_model_len,
            block_size=block_size, num_kv_blocks=num_kv_blocks, kv_memory_bytes=kv_memory_mib << 20,
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
            num_threads=num_threads,
        )  # fmt: skip
        config = DrafterConfig(
            engine=engine,
            listen=listen,
            tls=server_tls(tls_cert, tls_key, tls_client_ca),
            metrics_listen=metrics_listen,
            otlp_endpoint=otlp_endpoint,
            proposer=proposer,
            max_rows=max_rows or default_max_rows(device),
            max_prefill_tokens=max_prefill_tokens,
            max_branches=max_branches, most_ahead=most_ahead, most_drafted=most_drafted, stop_below=stop_below,
            num_kept=num_kept, loop_steps=loop_steps, draft_step=draft_step,
            adapters=_adapters(adapters_dir, adapter or (), max_adapters, max_adapter_rank),
        )  # fmt: skip
    (context.obj or _run)(config)


def _run(config: DrafterConfig) -> None:
    server.run(serve_drafter(config))


def _adapters(directory: Path | None, named: Sequence[str], most: int, max_rank: int) -> AdapterSettings:
    at_start = tuple(_named(text) for text in named)
    return AdapterSettings(directory=directory, at_start=at_start, most=most, max_rank=max_rank)


def _named(text: str) -> tuple[str, Path]:
    name, found, path = text.partition("=")
    if not found or not name or not path:
        raise ValueError(f"adapter is {text!r}; it must be NAME=FOLDER")
    return name, Path(path)


if __name__ == "__main__":
    app()
