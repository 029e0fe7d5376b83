"""The draft step's launches: all phases of all layers in one persistent kernel, or each phase in a kernel of its own.

Both read a phase's weights before they wait for the phase before it: weights depend on nothing. A phase in a kernel of
its own lets the next one start at once, so that the weights of several phases are on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import Final

import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.draft_step.accumulate import add_down, add_output, load_down, load_output
from slipstream.kernels.gpu.draft_step.attend import attend, bring_context_near
from slipstream.kernels.gpu.draft_step.barrier import Sync, arrive, wait
from slipstream.kernels.gpu.draft_step.ends import embed, finish
from slipstream.kernels.gpu.draft_step.feed_forward import load_gate_up, make_activated
from slipstream.kernels.gpu.draft_step.operands import Cache, Rows, Scratch, Sizes, Weights
from slipstream.kernels.gpu.draft_step.project import load_qkv, make_qkv
from slipstream.kernels.gpu.launch import start_next, wait_for_previous


class Phase(IntEnum):
    EMBED = 0
    QKV = 1
    ATTEND = 2
    OUTPUT = 3
    GATE_UP = 4
    DOWN = 5
    FINISH = 6


PER_LAYER: Final = (Phase.QKV, Phase.ATTEND, Phase.OUTPUT, Phase.GATE_UP, Phase.DOWN)
WIDE: Final = (Phase.QKV, Phase.GATE_UP)  # of one warp for each chunk of the hidden size
WARPS: Final = {phase: 8 if phase in WIDE else 4 for phase in Phase}
PERSISTENT_WARPS: Final = 8
MOST_BUILDS: Final = 8  # at a time


def phase_programs(phase: Phase, sizes: Sizes, num_rows: int) -> int:
    """How many programs a phase has work for."""
    programs = {
        Phase.QKV: (sizes.heads + 2 * sizes.kv_heads) * (sizes.head_dim // 2 // sizes.pair_tile),
        Phase.ATTEND: num_rows * sizes.kv_heads * sizes.splits,
        Phase.OUTPUT: sizes.heads * -(-sizes.hidden // sizes.output_tile),
        Phase.GATE_UP: -(-sizes.inner // sizes.unit_tile),
        Phase.DOWN: -(-sizes.inner // sizes.down_depth) * -(-sizes.hidden // sizes.down_tile),
    }
    return programs.get(phase, num_rows)


@triton.jit(do_not_specialize=["layer"])  # a value of 1 would arrive as a constant, and all layers share one kernel
def _phase_kernel(
    rows: Rows,
    weights: Weights,
    cache: Cache,
    scratch: Scratch,
    layer: tl.tensor,
    SIZES: tl.constexpr,
    PHASE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """One phase of one layer; as many programs as it has work for."""
    tile = tl.program_id(0)
    if OVERLAP:
        start_next()
    if PHASE == 1:
        qkv = load_qkv(weights, layer, tile, SIZES)
        if OVERLAP:
            wait_for_previous()
        make_qkv(qkv, layer, tile, rows, weights, cache, scratch, SIZES)
    elif PHASE == 2:
        if OVERLAP:
            if layer > 0:  # before the first one's, the step's inputs need not be there yet
                bring_context_near(layer, tile, rows, cache, SIZES)
            wait_for_previous()
        attend(layer, tile, tl.num_programs(0), rows, cache, scratch, SIZES)
    elif PHASE == 3:
        weight = load_output(weights, layer, tile, SIZES)
        if OVERLAP:
            wait_for_previous()
        add_output(weight, tile, rows, scratch, SIZES)
    elif PHASE == 4:
        gate_up = load_gate_up(weights, layer, tile, SIZES)
        if OVERLAP:
            wait_for_previous()
        make_activated(gate_up, tile, rows, weights, scratch, SIZES)
    elif PHASE == 5:
        weight = load_down(weights, layer, tile, SIZES)
        if OVERLAP:
            wait_for_previous()
        add_down(weight, tile, rows, scratch, SIZES)
    else:
        if OVERLAP:
            wait_for_previous()
        if PHASE == 0:
            embed(tile, tl.num_programs(0), rows, weights, scratch, SIZES)
        else:
            finish(tile, tl.num_programs(0), rows, weights, scratch, SIZES)


@triton.jit
def _draft_step_kernel(
    rows: Rows,
    weights: Weights,
    cache: Cache,
    scratch: Scratch,
    sync: Sync,
    SIZES: tl.constexpr,
    QKV_TILES: tl.constexpr,
    OUTPUT_TILES: tl.constexpr,
    GATE_UP_TILES: tl.constexpr,
    DOWN_TILES: tl.constexpr,
) -> None:
    """All phases of all layers; no more programs than can be resident at once, and at least one for every tile."""
    tile = tl.program_id(0)
    programs = tl.num_programs(0)
    target = tl.load(sync.start)
    patience = sync.patience
    embed(tile, programs, rows, weights, scratch, SIZES)
    arrive(sync)
    for layer in range(SIZES.layers):
        qkv = load_qkv(weights, layer, tile, SIZES)
        target += programs
        patience = wait(sync, target, patience)
        if tile < QKV_TILES:
            make_qkv(qkv, layer, tile, rows, weights, cache, scratch, SIZES)
        arrive(sync)
        target += programs
        patience = wait(sync, target, patience)
        attend(layer, tile, programs, rows, cache, scratch, SIZES)
        arrive(sync)
        weight = load_output(weights, layer, tile, SIZES)
        target += programs
        patience = wait(sync, target, patience)
        if tile < OUTPUT_TILES:
            add_output(weight, tile, rows, scratch, SIZES)
        arrive(sync)
        gate_up = load_gate_up(weights, layer, tile, SIZES)
        target += programs
        patience = wait(sync, target, patience)
        if tile < GATE_UP_TILES:
            make_activated(gate_up, tile, rows, weights, scratch, SIZES)
        arrive(sync)
        weight = load_down(weights, layer, tile, SIZES)
        target += programs
        patience = wait(sync, target, patience)
        if tile < DOWN_TILES:
            add_down(weight, tile, rows, scratch, SIZES)
        arrive(sync)
    target += programs
    wait(sync, target, patience)
    if tile == 0:
        tl.store(sync.start, target)  # every program has read it: each has arrived since
    finish(tile, programs, rows, weights, scratch, SIZES)


def launch_phase(
    phase: Phase, layer: int, rows: Rows, weights: Weights, cache: Cache, scratch: Scratch, sizes: Sizes
) -> None:
    """One phase alone: `PER_LAYER` for each layer between EMBED and FINISH are a step."""
    programs = phase_programs(phase, sizes, int(rows.num_rows))
    _phase_kernel[(programs,)](
        rows,
        weights,
        cache,
        scratch,
        layer,
        SIZES=sizes,
        PHASE=int(phase),
        num_warps=WARPS[phase],
        **launch.overlap_options(),
    )


def build_phases(rows: Rows, weights: Weights, cache: Cache, scratch: Scratch, all_sizes: Sequence[Sizes]) -> None:
    """Compiles what steps of such sizes launch, side by side: one after another they would take the start's time.

    What fails is told when it is launched; an error here would leave Triton in this mode.
    """
    with ThreadPoolExecutor(MOST_BUILDS) as executor, triton.AsyncCompileMode(executor, ignore_errors=True):
        for sizes in all_sizes:
            for phase in Phase:
                _phase_kernel.warmup(
                    rows,
                    weights,
                    cache,
                    scratch,
                    0,
                    grid=(1,),
                    SIZES=sizes,
                    PHASE=int(phase),
                    num_warps=WARPS[phase],
                    **launch.overlap_options(),
                )


def most_tiles(sizes: Sizes) -> int:
    """The programs that the persistent kernel needs at least."""
    return max(phase_programs(phase, sizes, 0) for phase in PER_LAYER)


def launch_step(
    rows: Rows, weights: Weights, cache: Cache, scratch: Scratch, sync: Sync, sizes: Sizes, num_programs: int
) -> None:
    """A whole step, by no more programs than there is work for, so that others find room beside it.

    All must be resident at once: `num_programs` is at most the GPU's multiprocessors.
    """
    wanted = max(phase_programs(phase, sizes, int(rows.num_rows)) for phase in PER_LAYER)
    tiles = {f"{phase.name}_TILES": phase_programs(phase, sizes, 0) for phase in PER_LAYER if phase is not Phase.ATTEND}
    assert most_tiles(sizes) <= num_programs, f"{tiles} for {num_programs} programs"
    _draft_step_kernel[(min(wanted, num_programs),)](
        rows,
        weights,
        cache,
        scratch,
        sync,
        SIZES=sizes,
        **tiles,
        num_warps=PERSISTENT_WARPS,
        launch_cooperative_grid=True,
    )
