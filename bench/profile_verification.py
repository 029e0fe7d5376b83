"""Says which kernel of verification takes how long, each after the one before: `python -m bench.profile_verification`.

Also sweeps how the statistics' one read of the logits is cut up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton
from torch.profiler import ProfilerActivity, profile

from bench.kernels.verification import KINDS, SHAPES, logits_and_table, verification_run
from bench.timing import copy_bandwidth, microseconds
from slipstream.kernels.gpu import launch, row_statistics
from slipstream.kernels.gpu.check_table import CheckTable

PROFILED = ("ratio", "coupled", "ratio top_k", "ratio top_p", "coupled top_k")
RUNS = 20
CUTS = ((1024, 2), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16))  # tile, warps


def kernel_times(run: Callable[[], object]) -> list[tuple[str, float]]:
    """Microseconds of each kernel in one run."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
    return [(event.key.strip("_"), event.device_time_total / RUNS) for event in profiled.key_averages()]


def statistics_run(logits: torch.Tensor, table: CheckTable, tile: int, warps: int) -> None:
    num_rows, vocab_size = logits.shape
    num_tiles = triton.cdiv(vocab_size, tile)
    values = logits.new_empty(num_rows, num_tiles, row_statistics.NUM_VALUES)
    tokens = logits.new_empty(num_rows, num_tiles, dtype=torch.int32)
    row_statistics._row_statistics_kernel[(num_rows, num_tiles)](
        logits, table.words, values, tokens, logits.stride(0), table.words.stride(0), vocab_size, 0, num_tiles,
        TILE=tile, num_warps=warps, **launch.overlap_options(),
    )  # fmt: skip


def profile_kinds(sequences: int, vocab_size: int) -> None:
    for kind in PROFILED:
        times = kernel_times(verification_run(sequences, vocab_size, *KINDS[kind], 0))
        told = ", ".join(f"{name.removesuffix('_kernel')} {time:.1f}" for name, time in times)
        print(f"{5 * sequences} x {vocab_size} {kind}: {sum(time for _, time in times):.1f} = {told}", flush=True)


def sweep_statistics(sequences: int, vocab_size: int) -> None:
    for kind in ("greedy", "coupled"):
        inputs = [logits_and_table(sequences, vocab_size, *KINDS[kind], seed) for seed in range(2)]
        figures = []
        for tile, warps in CUTS:
            time = microseconds([partial(statistics_run, *given, tile, warps) for given in inputs])
            figures.append(f"{tile}/{warps}: {time:.1f}")
        shape = f"{5 * sequences} x {vocab_size}"
        print(f"{shape} statistics, {kind}, tile/warps: {', '.join(figures)}", flush=True)


@torch.inference_mode()
def main() -> None:
    print(f"{torch.cuda.get_device_name()}, copy {copy_bandwidth() / 1e12:.2f} TB/s; us")
    for sequences, vocab_size, _ in SHAPES:
        sweep_statistics(sequences, vocab_size)
    launch.overlap_options = lambda: {"OVERLAP": False}  # a kernel that waits for another would be timed with it
    for sequences, vocab_size, _ in SHAPES:
        profile_kinds(sequences, vocab_size)


if __name__ == "__main__":
    main()
