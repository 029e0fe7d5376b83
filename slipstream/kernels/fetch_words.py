"""Brings words from the host's pinned memory to the device within a graph. The torch reference is a plain copy."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


def fetch_words(
    on_device: torch.Tensor,  # [num_words] int32
    on_host: torch.Tensor,  # [num_words] int32, pinned where there is a GPU
) -> None:
    """A copy node would make the kernels around it wait for another engine of the GPU, and that for them."""
    if fused(on_device):
        from slipstream.kernels.gpu import fetch_words as gpu

        gpu.fetch_words(on_device, on_host)
    else:
        on_device.copy_(on_host, non_blocking=True)
