"""How the small kernels of a step are launched: each may start while the one before it ends.

A kernel launched so calls `wait_for_inputs` before it touches what others wrote; on Hopper that turns the gap between
two launches into overlap. Weights, which no kernel writes, it may bring near before. Interpreted kernels know nothing
of it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


def overlap_options() -> dict[str, bool]:
    """Keyword arguments of a launch whose kernel has the constant OVERLAP."""
    if triton.knobs.runtime.interpret:
        return {"OVERLAP": False}
    return {"OVERLAP": True, "launch_pdl": True}


@triton.jit
def wait_for_inputs(OVERLAP: tl.constexpr) -> None:
    """Lets the next kernel start, and waits until what the kernels before this one wrote can be read."""
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def start_next() -> None:
    """Lets the next kernel start."""
    gdc_launch_dependents()


@triton.jit
def wait_for_previous() -> None:
    """Waits until what the kernels before this one wrote can be read."""
    gdc_wait()


@triton.jit
def bring_near(pointers: tl.tensor) -> None:
    """Has the L2 cache fetch the lines that the pointers lie in. Waits for nothing."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
