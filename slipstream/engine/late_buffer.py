"""A buffer of words on the host and its like on the device, made when they are first needed. Knows no contents."""

from __future__ import annotations

from functools import cached_property

import torch


class LateBuffer:
    """For what most requests never ask for. What is written to `host` is copied without waiting."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._size = size
        self._device = device

    @cached_property
    def host(self) -> torch.Tensor:
        """[size] int32, pinned if the device is a GPU."""
        return torch.zeros(self._size, dtype=torch.int32, pin_memory=self._device.type == "cuda")

    @cached_property
    def on_device(self) -> torch.Tensor:
        """[size] int32."""
        return torch.zeros(self._size, dtype=torch.int32, device=self._device)

    def upload(self, length: int) -> None:
        """Starts the copy of the first words; the copy before must have ended."""
        self.on_device[:length].copy_(self.host[:length], non_blocking=True)
