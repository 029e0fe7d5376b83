"""Times one step of a draft model by how it is launched: `python -m bench.bench_draft_step`. `--dry` needs no GPU.

Random weights of SmolLM2-135M's shape. Floor = (weights + KV bytes) / copy bandwidth of the same run. An error is that
of the logits against those of the separate kernels, in units of their norm.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from triton.runtime import interpreter

from bench.bench_verify import BLOCK_SIZE, SMOLLM2
from bench.timing import captured, copy_bandwidth, graph_microseconds
from slipstream.cache.kv_cache import KVCache
from slipstream.engine.fused_step import FusedStep, PersistentStep
from slipstream.engine.fused_step import Ground as StepGround
from slipstream.engine.plain_step import DraftStep, PlainStep
from slipstream.engine.step_choice import StepKind
from slipstream.kernels.gpu.draft_step.operands import Rows
from slipstream.kernels.gpu.draft_step.step import PER_LAYER, Phase
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from tests.kernels.gpu.conftest import patch_lang_tensor

ROWS, CONTEXTS = (1, 4, 8, 16, 32), (256, 1024)
DraftRows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # token ids, context lengths, block tables


@dataclass(frozen=True, slots=True)
class Ground:
    """What all steps of a run share."""

    model: LlamaModel
    cache: KVCache
    steps: dict[StepKind, DraftStep]
    bandwidth: float  # bytes per second; 0 = no GPU: nothing is captured


def make_ground(config: ModelConfig, max_rows: int, max_context: int, dry: bool) -> Ground:
    device = torch.device("cpu" if dry else "cuda")
    dtype = torch.float32 if dry else torch.bfloat16
    with device:
        model = LlamaModel(config, dtype)
    for parameter in model.parameters():
        parameter.data.normal_(*((1, 0.1) if parameter.dim() == 1 else (0, parameter.shape[-1] ** -0.5)))
    cache = KVCache(config, max_rows * -(-max_context // BLOCK_SIZE), BLOCK_SIZE, dtype, device)
    cache._data.normal_()
    ground = StepGround.of(model, cache, max_context)
    steps: dict[StepKind, DraftStep] = {
        StepKind.FUSED: FusedStep(ground),
        StepKind.SEPARATE: PlainStep(model, cache, max_context),
    }
    if not dry:
        programs = torch.cuda.get_device_properties(device).multi_processor_count
        steps[StepKind.PERSISTENT] = PersistentStep(ground, programs)
    return Ground(model, cache, steps, 0.0 if dry else copy_bandwidth())


def make_rows(num_rows: int, context: int, device: torch.device) -> DraftRows:
    width = -(-context // BLOCK_SIZE)
    token_ids = torch.arange(num_rows, device=device) * 7 + 1
    contexts = torch.full((num_rows,), context, device=device)
    return token_ids, contexts, torch.arange(num_rows * width, device=device).view(num_rows, width)


def floor(config: ModelConfig, num_kv_tokens: int, bandwidth: float) -> float:
    """Microseconds to read weights and keys and values once."""
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in LlamaModel(config, torch.bfloat16).parameters())
    kv_values = 2 * config.num_layers * num_kv_tokens * config.num_kv_heads * config.head_dim
    return 2 * (weights + kv_values) / bandwidth * 1e6


def microseconds(run: Callable[[], object], ground: Ground) -> float:
    """A replay of the run's graph; without a GPU the run itself."""
    if ground.bandwidth:
        return graph_microseconds(captured(run))
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e6


def _logits(model: LlamaModel, step: DraftStep, rows: DraftRows) -> torch.Tensor:
    return model.logits(step(*rows))


def report_steps(ground: Ground, num_rows: int, context: int) -> None:
    """One line: each kind's time, with the head and without, and its error."""
    model, rows = ground.model, make_rows(num_rows, context, ground.model.embedding.device)
    plain = PlainStep(model, ground.cache, rows[2].shape[1] * BLOCK_SIZE)
    expected = model.logits(plain(*rows)).double()
    line = f"{num_rows:>3} rows over {context:<5}"
    for kind, step in (ground.steps | {StepKind.SEPARATE: plain}).items():
        logits = model.logits(step(*rows)).double()
        error = ((logits - expected).norm() / expected.norm()).item()
        whole = microseconds(partial(_logits, model, step, rows), ground)
        line += f"  {kind} {whole / 1e3:.3f} ms (layers {microseconds(partial(step, *rows), ground) / 1e3:.3f})"
        line += f" error {error:.1e}" if kind is not StepKind.SEPARATE else ""
    if ground.bandwidth:
        line += f"  floor {floor(model.config, num_rows * context, ground.bandwidth) / 1e3:.3f}"
    print(line, flush=True)


def report_phases(ground: Ground, num_rows: int, context: int) -> None:
    """Each phase's launches alone, all layers of it one behind the other: us a launch."""
    fused = ground.steps[StepKind.FUSED]
    assert isinstance(fused, FusedStep)
    token_ids, contexts, tables = make_rows(num_rows, context, ground.model.embedding.device)
    rows, sizes = Rows(token_ids, contexts, tables, tables.shape[1], float(num_rows)), fused.sizes(num_rows)
    layers = range(ground.model.config.num_layers)

    def all_layers(phase: Phase) -> None:
        for layer in layers:
            fused.run_phase(phase, layer, rows, sizes)

    times = {phase.name: microseconds(partial(all_layers, phase), ground) / len(layers) for phase in PER_LAYER}
    print(f"{num_rows:>3} rows over {context:<5}", *(f" {name} {us:.2f} us" for name, us in times.items()), flush=True)


def report_barriers(ground: Ground) -> None:
    """The persistent kernel without rows: barriers and weights, nothing else."""
    step = ground.steps[StepKind.PERSISTENT]
    none = [torch.zeros(shape, dtype=torch.int64, device="cuda") for shape in ((0,), (0,), (0, 16))]
    us = microseconds(lambda: step(*none), ground)
    print(
        f"  0 rows: {us / 1e3:.3f} ms, {us / (len(PER_LAYER) * ground.model.config.num_layers + 1):.2f} us a barrier",
        flush=True,
    )


@torch.inference_mode()
def bench(config: ModelConfig, counts: Sequence[int], contexts: Sequence[int], dry: bool) -> None:
    ground = make_ground(config, max(counts), max(contexts), dry)
    if not dry:
        report_barriers(ground)
    for context in contexts:
        for num_rows in counts:
            report_steps(ground, num_rows, context)
    for num_rows in (counts[0], counts[-1]):
        report_phases(ground, num_rows, contexts[-1])
    if not dry:
        persistent = ground.steps[StepKind.PERSISTENT]
        assert isinstance(persistent, PersistentStep)
        print(f"programs that waited in vain: {persistent.error.item()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dry", action="store_true", help="no GPU: kernels are interpreted, one layer, times mean nothing"
    )
    dry = parser.parse_args().dry
    if dry:
        interpreter._patch_lang_tensor = patch_lang_tensor
        bench(replace(SMOLLM2, num_layers=1, vocab_size=512), (1, 2), (20,), dry)
    else:
        bench(SMOLLM2, ROWS, CONTEXTS, dry)


if __name__ == "__main__":
    main()
