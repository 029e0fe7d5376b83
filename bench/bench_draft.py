"""Times whole draft loops, captured, beside drafting step by step: `python -m bench.bench_draft`. `--dry` needs no GPU.

Random weights of real shapes: SmolLM2-135M, and the draft LM of 4 layers and 12,288 tokens. Floor = what a step must
read / copy bandwidth of the same run, times the steps. Host time is what a call takes beyond its graph.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from bench.bench_verify import BLOCK_SIZE, SMOLLM2
from bench.timing import copy_bandwidth, microseconds
from drafter_svc.proposers.draft_model import DraftModel, limits_of
from drafter_svc.proposers.looped import LoopedDraft
from drafter_svc.proposers.proposer import Drawing, Proposer, Row
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_buffers import LoopSize
from slipstream.engine.draft_loop import DraftLoop
from slipstream.engine.graph_capture import GraphCapture
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.step_choice import StepKind, make_draft_step
from slipstream.kernels.draft_choice import choose_drafts, table_of
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.request import SamplingParams, VerificationMode

CONTEXT, MAX_MODEL_LEN = 500, 2048
ROWS, NUM_STEPS = (1, 16, 32), 5
NUM_KEPT, NUM_OUTCOMES = 32, 9
REPEATS = 30
STEPWISE_BESIDE = StepKind.SEPARATE
DRAFT_LM = replace(SMOLLM2, num_layers=4)
SHAPES = {"135M": (SMOLLM2, None), "4 layers": (DRAFT_LM, 12_288)}


class DryCapture:
    """Replays nothing: what is left is the host's work."""

    num_bytes, is_full = 0, False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class TimedCapture(GraphCapture):
    """Remembers how long the last replay took on the GPU."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, 8 << 30)
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        replay = super().capture(run)

        def timed() -> None:
            self.start.record()
            replay()
            self.end.record()

        return timed

    def microseconds(self) -> float:
        return float(self.start.elapsed_time(self.end)) * 1e3


@dataclass(frozen=True, slots=True)
class Ground:
    name: str
    runner: ModelRunner
    choice: TokenChoice
    stepwise: DraftModel
    bytes_per_step: int  # of weights


def make_ground(name: str, config: ModelConfig, num_tokens: int | None, device: torch.device) -> Ground:
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    with device:
        model = LlamaModel(config, dtype)
        for parameter in model.parameters():
            parameter.data.normal_(*((1, 0.1) if parameter.dim() == 1 else (0, parameter.shape[-1] ** -0.5)))
    target_ids = None if num_tokens is None else torch.arange(num_tokens, device=device) * 4
    if target_ids is not None:
        model.reduce_head(target_ids)
    blocks = max(ROWS) * -(-(CONTEXT + 16) // BLOCK_SIZE)
    runner = ModelRunner(model, KVCache(config, blocks, BLOCK_SIZE, dtype, device), MAX_MODEL_LEN)
    vocab = config.vocab_size
    choice = TokenChoice(vocab_size=vocab, num_target_ids=vocab, num_kept=NUM_KEPT, target_ids=target_ids)
    head = 0 if model.head is None else model.head.nbytes - model.embedding.nbytes
    weights = sum(parameter.nbytes for parameter in model.layers.parameters()) + model.embedding.nbytes + head
    return Ground(name, runner, choice, DraftModel(runner, limits_of(runner), choice), weights)


def rows_of(num_rows: int, sampling: SamplingParams) -> list[Row]:
    width = -(-(CONTEXT + 16) // BLOCK_SIZE)
    return [
        Row(
            token_ids=[7 + i], start=CONTEXT, block_ids=range(i * width, (i + 1) * width),
            drawing=Drawing(sampling=sampling, mode=VerificationMode.RATIO, seed=i, draft_key=i, sample_index=0),
            draw=i, num_wanted=NUM_STEPS, num_outcomes=NUM_OUTCOMES,
        )
        for i in range(num_rows)
    ]  # fmt: skip


def draft_stepwise(proposer: Proposer, rows: list[Row]) -> None:
    for _ in range(NUM_STEPS):
        proposals = proposer.propose(rows)
        rows = [
            replace(row, token_ids=[drawn.token.token_id], start=row.end)
            for row, (drawn,) in zip(rows, proposals, strict=True)
        ]


def median_microseconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times[3:])


def report(ground: Ground, kind: StepKind, num_rows: int, sampling: SamplingParams, bandwidth: float) -> None:
    device = ground.runner.model.embedding.device
    drafting = ground.choice.drafting(NUM_OUTCOMES, device)
    timed = TimedCapture(device) if bandwidth else None
    step = make_draft_step(ground.runner.model, ground.runner.kv_cache, MAX_MODEL_LEN, kind)
    loop = DraftLoop(
        step, step, ground.runner.model.logits, ground.runner.kv_cache.copy_listed_blocks, drafting,
        sizes=[LoopSize(num_rows, n) for n in (1, NUM_STEPS)],
        max_blocks=MAX_MODEL_LEN // BLOCK_SIZE, capture=timed or DryCapture(),
    )  # fmt: skip
    looped, rows = LoopedDraft(ground.stepwise, loop, drafting), rows_of(num_rows, sampling)
    repeats = REPEATS if timed else 3
    whole = median_microseconds(lambda: looped.propose(rows), repeats)
    graph = timed.microseconds() if timed else 0.0
    looped.propose([replace(row, num_wanted=1) for row in rows])
    one = timed.microseconds() if timed else 0.0
    stepwise = median_microseconds(lambda: draft_stepwise(ground.stepwise, rows), 1) if kind is STEPWISE_BESIDE else 0.0
    config = ground.runner.config
    kv_bytes = 4 * config.num_layers * num_rows * CONTEXT * config.num_kv_heads * config.head_dim
    floor = NUM_STEPS * (ground.bytes_per_step + kv_bytes) / bandwidth * 1e6 if bandwidth else 0.0
    print(
        f"{ground.name:<9} {kind:<11}T={sampling.temperature:g} {num_rows:>3} x {NUM_STEPS}: all {whole / 1e3:.3f} ms, "
        f"graph {graph / 1e3:.3f} ({graph / NUM_STEPS / 1e3:.3f} a step; one alone {one / 1e3:.3f}), "
        f"host {(whole - graph) / 1e3:.3f}, floor {floor / 1e3:.3f}, step by step {stepwise / 1e3:.2f}",
        flush=True,
    )


def report_choice(ground: Ground, num_rows: int, sampling: SamplingParams) -> None:
    """The choice of tokens alone: logits to drawn rows."""
    device = ground.runner.model.embedding.device
    drafting = ground.choice.drafting(NUM_OUTCOMES, device)
    logits = torch.randn(num_rows, len(drafting.target_ids), device=device) * 3
    settings = [row.drawing.settings for row in rows_of(num_rows, sampling)]
    table = torch.from_numpy(table_of(settings)).to(device)
    positions = torch.arange(num_rows, device=device)
    drawn = torch.zeros(num_rows, drafting.width, dtype=torch.int32, device=device)
    run = partial(choose_drafts, logits, table, positions, drafting, drawn, torch.zeros_like(positions))
    us = microseconds([run]) if device.type == "cuda" else median_microseconds(run, 1)
    print(f"{ground.name:<9} T={sampling.temperature:g} {num_rows:>3}: choice {us:.1f} us", flush=True)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="no GPU: tiny, on the CPU, the host's work alone")
    parser.add_argument("--kinds", default="separate,fused", help="how steps are launched")
    arguments = parser.parse_args()
    kinds = [StepKind(kind) for kind in arguments.kinds.split(",")]
    device = torch.device("cpu" if arguments.dry else "cuda")
    bandwidth = 0.0 if arguments.dry else copy_bandwidth()
    tiny = {"tiny": (replace(SMOLLM2, num_layers=1, vocab_size=512), 128)}
    for name, (config, num_tokens) in (tiny if arguments.dry else SHAPES).items():
        ground = make_ground(name, config, num_tokens, device)
        for num_rows in ROWS[:2] if arguments.dry else ROWS:
            for sampling in (SamplingParams(temperature=0.0), SamplingParams()):
                report_choice(ground, num_rows, sampling)
                for kind in kinds:
                    report(ground, kind, num_rows, sampling, bandwidth)


if __name__ == "__main__":
    main()
