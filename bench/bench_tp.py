"""Several GPUs for one model: sums over ranks, whole verify steps against those of one GPU, and whether ids are equal.

    python -m bench.bench_tp                 # needs as many GPUs of one host as --ranks
    python -m bench.bench_tp --dry           # on CPUs with tiny shapes: shows that it runs; its figures mean nothing

Every rank runs this same script, so no rank leads. Random weights: the time does not depend on them. Floor = (weights +
KV bytes) of one rank / copy bandwidth of the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.multiprocessing.spawn import start_processes

from bench.bench_verify import LLAMA_8B, SMOLLM2, Step
from bench.timing import LAUNCHES, captured, copy_bandwidth, graph_microseconds
from slipstream.cache.kv_cache import KVCache
from slipstream.config import ALL_REDUCE_METHODS, EngineConfig
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.rank_runner import verify_slices
from slipstream.exchange import DraftToken, LawKind
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.kernels.gpu.check_table import pack_checks
from slipstream.kernels.gpu.verification import verify_table
from slipstream.kernels.verification import verify_sliced
from slipstream.models.llama import LlamaModel
from slipstream.models.widen import Shape, widen
from slipstream.parallel.all_reduce import make_all_reduce
from slipstream.parallel.joining import LOOPBACK, Place, join, leave, make_store
from slipstream.parallel.ranks import ALONE, RankGroup, Ranks
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

BLOCK_SIZE = 16
LLAMA_70B = replace(LLAMA_8B, hidden_size=8192, intermediate_size=28672, num_layers=80, num_heads=64, num_kv_heads=8)
TINY = replace(SMOLLM2, vocab_size=330, hidden_size=96, intermediate_size=160, num_layers=2, head_dim=16)
STEPS = (
    Step("8B shape", LLAMA_8B, 1, 5, 1024, "0.68 x one GPU, aim 0.60"),
    Step("8B shape", LLAMA_8B, 32, 5, 256, ""),
    Step("70B shape", LLAMA_70B, 1, 5, 1024, "floor 16.4 ms"),
    Step("70B shape", LLAMA_70B, 32, 5, 256, ""),
)
DRY_STEPS = (Step("tiny", TINY, 1, 5, 64, ""), Step("tiny", TINY, 3, 5, 32, ""))
ROWS = (1, 5, 32, 160)
BYTES_OF_ONE_GPU = 120 << 30  # larger models are not tried there
IDS_SHAPE = Shape(hidden_size=640, intermediate_size=1600, num_layers=4, num_heads=12, num_kv_heads=3, head_dim=128)


@dataclass(frozen=True, slots=True)
class Bench:
    """One rank's view of the run."""

    device: torch.device
    dtype: torch.dtype
    groups: dict[str, RankGroup]  # by how they add up

    @property
    def is_first(self) -> bool:
        return next(iter(self.groups.values())).shard.rank == 0

    def say(self, text: str) -> None:
        if self.is_first:
            print(text, flush=True)

    def microseconds(self, run: Callable[[], object], launches: int = 1) -> float:
        """Median time of one run, of so many in a graph; without a GPU, of plain calls."""
        if self.device.type == "cuda":
            return graph_microseconds(captured(run, launches)) / launches
        times = []
        for _ in range(5):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6


def time_sums(bench: Bench, hidden_sizes: tuple[int, ...]) -> None:
    bench.say(f"\n{'sum over ranks, us':<22}" + "".join(f"{method:>12}" for method in bench.groups))
    for hidden in hidden_sizes:
        for rows in ROWS:
            x = torch.randn(rows, hidden, device=bench.device, dtype=bench.dtype)
            times = [bench.microseconds(partial(ranks.sum, x), LAUNCHES) for ranks in bench.groups.values()]
            bench.say(f"{f'{rows} x {hidden}':<22}" + "".join(f"{figure:>12.1f}" for figure in times))


def time_steps(bench: Bench, steps: tuple[Step, ...]) -> None:
    bandwidth = copy_bandwidth() if bench.device.type == "cuda" else float("nan")
    bench.say(f"\ncopy {bandwidth / 1e12:.2f} TB/s; whole verify steps, ms")
    names = "".join(f"{method:>12}" for method in bench.groups)
    bench.say(f"{'model':<12}{'step':<18}{'one rank':>10}{names}{'ratio':>8}{'floor':>8}{'x floor':>9}  target")
    for step in steps:
        alone = time_alone(bench, step)
        times, num_bytes = [], 0
        for ranks in bench.groups.values():
            milliseconds, num_bytes = time_step(bench, step, ranks)
            times.append(milliseconds)
        floor, best = num_bytes / bandwidth * 1e3, min(times)
        figures = f"{alone:>10.3f}" + "".join(f"{figure:>12.3f}" for figure in times)
        shares = f"{best / alone:>8.2f}{floor:>8.3f}{best / floor:>9.2f}"
        bench.say(f"{step.name:<12}{step.shape:<18}{figures}{shares}  {step.target}")


def time_alone(bench: Bench, step: Step) -> float:
    """On the first GPU, while the others wait; not a number if it does not fit."""
    config = step.config
    matrices = config.hidden_size * (2 * config.num_heads * config.head_dim + 3 * config.intermediate_size)
    fits = config.num_layers * matrices * bench.dtype.itemsize < BYTES_OF_ONE_GPU
    milliseconds = time_step(bench, step, ALONE)[0] if fits and bench.is_first else float("nan")
    dist.barrier()
    return milliseconds


def time_step(bench: Bench, step: Step, ranks: Ranks) -> tuple[float, int]:
    """Milliseconds, and the bytes of weights, keys and values that one rank reads."""
    with bench.device:
        model = LlamaModel(step.config, bench.dtype, ranks)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.02)
    run, kv_bytes = step_of(bench, step, model)
    milliseconds = bench.microseconds(run) / 1e3
    read = sum(p.numel() for p in model.layers.parameters()) + model.embedding.numel()  # the head is as large
    del model, run
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()
    return milliseconds, read * bench.dtype.itemsize + kv_bytes


def step_of(bench: Bench, step: Step, model: LlamaModel) -> tuple[Callable[[], object], int]:
    """The step as a function of no arguments, and the bytes of keys and values that one rank reads."""
    per_sequence, share = -(-step.context // BLOCK_SIZE), model.share
    cache = KVCache(share, step.sequences * per_sequence, BLOCK_SIZE, bench.dtype, bench.device)
    starts = [i * per_sequence for i in range(step.sequences)]
    start = step.context - step.tokens
    chunks = [Chunk(range(step.tokens), start, range(i, i + per_sequence), step.tokens) for i in starts]
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, bench.device)
    draft = tuple(DraftToken(token, LawKind.ONE_HOT) for token in range(step.tokens - 1))
    check = SequenceCheck(draft=draft, base=step.context, sampling=SamplingParams(), mode=VerificationMode.COUPLED)
    checks, vocabulary = [check] * step.sequences, model.vocabulary_slice
    numbers = 2 * share.num_layers * step.sequences * step.context * share.num_kv_heads * share.head_dim
    if bench.device.type != "cuda":
        return lambda: verify_sliced(model.slice_logits(model(batch, cache)), checks, vocabulary), numbers * 4
    table = pack_checks(checks, step.config.vocab_size, bench.device)
    sliced = vocabulary if model.ranks.shard.size > 1 else None
    return lambda: verify_table(model.slice_logits(model(batch, cache)), table, sliced), numbers * 2


def compare_ids(bench: Bench, num_tokens: int) -> None:
    """Greedy, fp32: a small random model, widened on each rank to heads that do not divide, against itself whole."""
    torch.manual_seed(5)
    small = LlamaModel(TINY, torch.float32)
    for parameter in small.parameters():
        parameter.data.normal_(0, 0.2)
    small = small.to(bench.device)
    for method, ranks in bench.groups.items():
        whole, divided = (greedy_ids(small, each, bench, num_tokens) for each in (ALONE, ranks))
        bench.say(f"{num_tokens} greedy ids in fp32, {method}: {'equal' if whole == divided else 'DIFFERENT'}")


def greedy_ids(small: LlamaModel, ranks: Ranks, bench: Bench, num_tokens: int) -> list[int]:
    model = widen(small, IDS_SHAPE, ranks)
    num_blocks = -(-(num_tokens + 8) // BLOCK_SIZE)
    runner = ModelRunner(model, KVCache(model.share, num_blocks, BLOCK_SIZE, torch.float32, bench.device))
    return list(_ids(runner, range(num_blocks), num_tokens))


def _ids(runner: ModelRunner, blocks: range, num_tokens: int) -> Iterator[int]:
    fed, new = 0, [5, 6, 7, 8, 9]
    for _ in range(num_tokens):
        check = SequenceCheck(
            draft=(), base=fed + len(new), sampling=SamplingParams(temperature=0.0), mode=VerificationMode.RATIO
        )
        (verdict,) = verify_slices(runner, [Chunk(new, fed, blocks, 1)], [check])
        fed, new = fed + len(new), list(verdict.token_ids)
        yield new[0]


@torch.inference_mode()
def run_rank(rank: int, size: int, port: int, dry: bool, only: str) -> None:
    torch.set_num_threads(1)
    device = torch.device("cpu") if dry else torch.device("cuda", rank)
    config = EngineConfig(model=Path(), device="cpu" if dry else "cuda", tensor_parallel_size=size, all_reduce="group")
    store = TCPStore(LOOPBACK, port, size, is_master=False, wait_for_workers=False)
    join(Place(rank=rank, size=size, local_rank=rank, one_machine=True), config, store)
    world = dist.group.WORLD
    assert world is not None
    groups = {method: RankGroup(world, make_all_reduce(method, world, device, True)) for method in ALL_REDUCE_METHODS}
    bench = Bench(device, torch.float32 if dry else torch.bfloat16, groups)
    hardware = "CPU, dry" if dry else f"{size} x {torch.cuda.get_device_name()}"
    bench.say(f"{hardware}, torch {torch.__version__}, {size} ranks")
    if only in ("", "ids"):
        compare_ids(bench, 16 if dry else 64)
    if only in ("", "sums"):
        time_sums(bench, (96,) if dry else (4096, 8192))
    if only in ("", "steps"):
        time_steps(bench, DRY_STEPS if dry else STEPS)
    dist.barrier()
    leave()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="tiny shapes on CPUs")
    parser.add_argument("--only", choices=("", "ids", "sums", "steps"), default="")
    arguments = parser.parse_args()
    store = make_store(arguments.ranks)
    options = (arguments.ranks, store.port, arguments.dry, arguments.only)
    start_processes(run_rank, options, nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
