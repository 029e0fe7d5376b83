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
    """The PTX of each phase, for few rows and for more, and of the persistent kernel."""
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
        "rows": Rows(INT64, INT64, INT64, "i32", "fp32"),
        "weights": Weights(**dict.fromkeys(Weights._fields, BF16))._replace(eps="fp32"),
        "cache": Cache(BF16, BF16, "i64"),
        "scratch": Scratch(FP32, BF16, FP32, FP32, BF16, BF16),
        "sync": Sync(INT64, INT64, INT32, "i32"),
        "layer": "i32",
    }


def _build(kernel: Any, constants: dict[str, Any], num_warps: int) -> str:
    import triton
    from triton.backends.compiler import GPUTarget

    types = _signature()
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    aligned = {
        (i, j): [["tt.divisibility", 16]]
        for i, fields in enumerate(signature.values())
        if isinstance(fields, tuple)
        for j, kind in enumerate(fields)
        if kind.startswith("*") or kind == "i64"  # the stride of a layer
    }
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": num_warps, "launch_pdl": True}
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])


def _build_all() -> dict[str, str]:
    from bench.bench_verify import SMOLLM2
    from slipstream.kernels.gpu.draft_step import step
    from slipstream.kernels.gpu.draft_step.plan import plan

    narrow, wide = (plan(SMOLLM2, num_rows=num_rows, block_size=16) for num_rows in (8, 16))
    tiles = {
        f"{phase.name}_TILES": step.phase_programs(phase, narrow, 0)
        for phase in step.PER_LAYER
        if phase is not step.Phase.ATTEND
    }
    phases = {
        f"{phase.name} {sizes.tile_rows}": _build(
            step._phase_kernel, {"SIZES": sizes, "PHASE": int(phase), "OVERLAP": True}, step.WARPS[phase]
        )
        for phase in step.Phase
        for sizes in ((narrow, wide) if phase in step.PER_LAYER else (narrow,))
    }
    persistent = _build(step._draft_step_kernel, {"SIZES": narrow} | tiles, step.PERSISTENT_WARPS)
    return phases | {"persistent": persistent}


if __name__ == "__main__":
    json.dump(_build_all(), sys.stdout)
