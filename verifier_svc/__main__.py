"""`python -m verifier_svc`: reads options and serves a verifier. Knows the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream import command_line, logs
from slipstream.config import EngineConfig
from slipstream.parallel.crew import follows
from slipstream.wire import server
from slipstream.wire.tls import server_tls
from verifier_svc.config import DEFAULT_LISTEN, VerifierConfig
from verifier_svc.service import serve_verifier

PromptTokensBeside = Annotated[
    int,
    typer.Option(
        help="Most prompt tokens of a step in which others decode; 0: by what steps take on a GPU, no bound on a CPU."
    ),
]
LaunchAhead = Annotated[
    bool, typer.Option(help="On a GPU, launch a step while the one before it runs; changes nothing but speed.")
]
NgramFallback = Annotated[bool, typer.Option(help="Draft by n-gram here when a sequence that allows it has no drafts.")]
Features = Annotated[
    Path | None, typer.Option(help="Folder of the EAGLE-3 head whose drafters get features from here.")
]
TraceFile = Annotated[Path | None, typer.Option(help="Write a timeline of the steps here at the end, for Perfetto.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    context: typer.Context,  # its `obj` takes the configuration instead, if there is one
    model: Annotated[Path, typer.Option(help="Hugging Face folder, or a .gguf file beside its tokenizer files.")],
    listen: command_line.Listen = DEFAULT_LISTEN,
    name: Annotated[str, typer.Option(help="The model's name for clients; by default that of its folder.")] = "",
    device: command_line.Device = "cpu",
    dtype: command_line.Dtype = "bfloat16",
    max_model_len: command_line.MaxModelLen = 0,
    block_size: command_line.BlockSize = 16,
    num_kv_blocks: command_line.NumKvBlocks = 0,
    kv_memory_mib: command_line.KvMemoryMib = 512,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences in the batch.")] = 64,
    max_num_batched_tokens: command_line.MaxNumBatchedTokens = 512,
    max_waiting: Annotated[int, typer.Option(help="Most sequences that wait for a place in the batch.")] = 256,
    prompt_tokens_beside: PromptTokensBeside = 0,
    launch_ahead: LaunchAhead = True,
    ngram_fallback: NgramFallback = True,
    features: Features = None,
    num_threads: command_line.NumThreads = 1,
    widen: command_line.Widen = "",
    cuda_graphs: command_line.CudaGraphs = True,
    graph_memory_mib: command_line.GraphMemoryMib = 2048,
    tensor_parallel_size: command_line.TensorParallelSize = 1,
    all_reduce: command_line.AllReduce = "symmetric",
    tls_cert: command_line.TlsCert = None,
    tls_key: command_line.TlsKey = None,
    tls_client_ca: command_line.TlsClientCa = None,
    metrics_listen: command_line.MetricsListen = "",
    otlp_endpoint: command_line.OtlpEndpoint = "",
    trace: TraceFile = None,
    log_level: command_line.LogLevel = "info",
    log_json: command_line.LogJson = False,
) -> None:
    """Serves slipstream.v1.Verifier: runs the target model, checks drafts, makes tokens final."""
    with command_line.mistakes_in_one_line():
        logs.configure(log_level, as_json=log_json)
        engine = EngineConfig(
            model=model,
            device=device, dtype=dtype, max_model_len=max_model_len,
            block_size=block_size, num_kv_blocks=num_kv_blocks, kv_memory_bytes=kv_memory_mib << 20,
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
            num_threads=num_threads, features=features, widen=widen,
            cuda_graphs=cuda_graphs, graph_memory_bytes=graph_memory_mib << 20,
            tensor_parallel_size=tensor_parallel_size, all_reduce=all_reduce,
        )  # fmt: skip
        config = VerifierConfig(
            engine=engine,
            listen=listen,
            tls=server_tls(tls_cert, tls_key, tls_client_ca),
            metrics_listen=metrics_listen,
            otlp_endpoint=otlp_endpoint,
            name=name,
            max_waiting=max_waiting,
            prompt_tokens_beside=prompt_tokens_beside,
            launches_ahead=launch_ahead,
            ngram_fallback=ngram_fallback,
            trace=trace,
        )
    (context.obj or _run)(config)


def _run(config: VerifierConfig) -> None:
    """Another rank than 0, where torchrun has started this, serves nobody."""
    with command_line.mistakes_in_one_line():
        other_rank = follows(config.engine)
    if not other_rank:
        server.run(serve_verifier(config))


if __name__ == "__main__":
    app()
