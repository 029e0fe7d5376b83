"""Reads words from the host's memory with a kernel: a step's inputs are few, and a copy engine takes long to begin."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import wait_for_inputs

BLOCK = 512  # words of one program, four a thread: all of them are on their way at once


@triton.jit
def _fetch_words_kernel(
    on_device_ptr: tl.tensor,  # [num_words] int32, out
    on_host_ptr: tl.tensor,  # [num_words] int32, in memory of the host that the device can read
    num_words: int,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """on_device = on_host; the cache is passed by, for the host writes anew what it may hold of the last step."""
    wait_for_inputs(OVERLAP)
    words = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = words < num_words
    tl.store(on_device_ptr + words, tl.load(on_host_ptr + words, mask=inside, volatile=True), mask=inside)


def fetch_words(
    on_device: torch.Tensor,  # [num_words] int32
    on_host: torch.Tensor,  # [num_words] int32, pinned where there is a GPU
) -> None:
    num_words = len(on_device)
    assert on_device.dtype == on_host.dtype == torch.int32
    assert on_host.shape == on_device.shape
    assert on_host.is_pinned() or not on_device.is_cuda
    _fetch_words_kernel[(triton.cdiv(num_words, BLOCK),)](
        on_device, on_host, num_words, BLOCK=BLOCK, num_warps=4, **launch.overlap_options()
    )
