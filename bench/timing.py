"""Times GPU work by graph replay, and the copy bandwidth that everything is measured against. Knows no kernel."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

LAUNCHES = 16  # in one graph, so that gaps between launches are those of a real step
REPLAYS = 25


def captured(run: Callable[[], object], launches: int = 1) -> torch.cuda.CUDAGraph:
    """A graph of so many runs, made after one warm-up that compiles and allocates."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's threads may call CUDA meanwhile
        for _ in range(launches):
            run()
    return graph


def graph_microseconds(graph: torch.cuda.CUDAGraph, replays: int = REPLAYS) -> float:
    """Median time of one replay."""
    times = []
    for _ in range(replays + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times[3:])


def microseconds(runs: list[Callable[[], object]]) -> float:
    """Median time of one run; several runs over different inputs take turns, so that no cache holds them all."""

    def all_of_them() -> None:
        for index in range(max(LAUNCHES, len(runs))):
            runs[index % len(runs)]()

    for run in runs:
        run()
    return graph_microseconds(captured(all_of_them)) / max(LAUNCHES, len(runs))


def copy_bandwidth(num_bytes: int = 4 << 30) -> float:
    """Bytes per second of a large device-to-device copy, those read plus those written."""
    source = torch.randn(num_bytes // 4, device="cuda")
    target = torch.empty_like(source)
    # A kernel, not copy_: in a graph that becomes a copy node, which here moved 2.8 TB/s where kernels move 4.3.
    return 2 * num_bytes / (graph_microseconds(captured(lambda: torch.neg(source, out=target)), 10) * 1e-6)
