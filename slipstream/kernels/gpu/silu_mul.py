"""The gated activation of the feed-forward block on a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import wait_for_inputs

BLOCK = 1024


@triton.jit
def _silu_mul_kernel(
    gate_up_ptr: tl.tensor,  # [num_rows, 2 * size]: gate, then up
    output_ptr: tl.tensor,  # [num_rows, size]
    size: int,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """output = gate / (1 + exp(-gate)) * up, in fp32."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate = tl.load(gate_up_ptr + row * 2 * size + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * size + size + columns, mask=inside, other=0.0).to(tl.float32)
    activated = gate / (1.0 + tl.exp(-gate))
    # The reference rounds between the two factors; so does this, to agree with it in 16 bits.
    product = activated.to(output_ptr.dtype.element_ty).to(tl.float32) * up
    tl.store(output_ptr + row * size + columns, product.to(output_ptr.dtype.element_ty), mask=inside)


def silu_mul(
    gate_up: torch.Tensor,  # [..., 2 * size]: gate, then up
) -> torch.Tensor:
    """silu(gate) * up, [..., size]."""
    assert gate_up.shape[-1] % 2 == 0, f"the last axis holds gate and up; it has {gate_up.shape[-1]} values"
    rows = gate_up.contiguous()
    size = rows.shape[-1] // 2
    output = rows.new_empty(*rows.shape[:-1], size)
    num_rows = output.numel() // size
    if num_rows:
        block = min(BLOCK, triton.next_power_of_2(size))
        _silu_mul_kernel[(num_rows, triton.cdiv(size, block))](
            rows, output, size, BLOCK=block, num_warps=4, **launch.overlap_options()
        )
    return output
