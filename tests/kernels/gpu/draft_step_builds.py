"""Builds the kernels of draft steps for Hopper without a GPU, in a process where nothing is interpreted; gives the PTX.

Apart from hopper_builds.py: these take tensors in named tuples, and the persistent one takes its time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

TIMEOUT = 170  # seconds
BF16, FP32, INT64, INT32 = "*bf16", "*fp32", "*i64", "*i32"


def build_all() -> dict[str, str]:
    """The PTX of each phase, by number, and of the persistent kernel."""
    command = [sys.executable, "-m", "tests.kernels.gpu.draft_step_builds"]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    ptx: dict[str, str] = json.loads(done.stdout)
    return ptx


def _signature() -> dict[str, Any]:
    from slipstream.kernels.gpu.draft_step.barrier import Sync
    from slipstream.kernels.gpu.draft_step.operands import Cache, Rows, Scratch, Weights

    return {
        "rows": Rows(INT64, INT64, INT64, "i32", "i32"),
        "weights": Weights(**dict.fromkeys(Weights._fields, BF16))._replace(eps="fp32"),
        "cache": Cache(BF16, BF16, "i64"),
        "scratch": Scratch(FP32, BF16, FP32, FP32, BF16, BF16),
        "sync": Sync(INT64, INT64, INT32, "i32"),
        "layer": "i32",
    }


def _build(kernel: Any, constants: dict[str, Any]) -> str:
    import triton
    from triton.backends.compiler import GPUTarget

    from slipstream.kernels.gpu.draft_step.step import NUM_WARPS

    types = _signature()
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    aligned = {
        (i, j): [["tt.divisibility", 16]]
        for i, fields in enumerate(signature.values())
        if isinstance(fields, tuple)
        for j, kind in enumerate(fields)
        if kind.startswith("*")
    }
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": NUM_WARPS}).asm["ptx"])


def _build_all() -> dict[str, str]:
    from bench.bench_verify import SMOLLM2
    from slipstream.kernels.gpu.draft_step import step
    from slipstream.kernels.gpu.draft_step.plan import plan

    sizes = plan(SMOLLM2, 132, num_rows=8, block_size=16)
    tiles = {
        f"{phase.name}_TILES": step.phase_programs(phase, sizes, 0)
        for phase in step.PER_LAYER
        if phase is not step.Phase.ATTEND
    }
    built = {
        phase.name: _build(step._phase_kernel, {"SIZES": sizes, "PHASE": int(phase), "OVERLAP": True})
        for phase in step.Phase
    }
    return built | {"persistent": _build(step._draft_step_kernel, {"SIZES": sizes} | tiles)}


if __name__ == "__main__":
    json.dump(_build_all(), sys.stdout)
