"""A step's token masks on their way to the device: pinned on the host, copied in one piece. Knows no grammar."""

from __future__ import annotations

import torch

from slipstream.sampling.token_masks import TokenMasks
from slipstream.token_bits import num_words


class MaskBuffers:
    """Made for the largest step when masks are first needed: most requests have none."""

    def __init__(self, most_rows: int, vocab_size: int, device: torch.device) -> None:
        self._most_rows = most_rows
        self._num_words = num_words(vocab_size)
        self._device = device
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None  # on the host, on the device

    def upload(self, masks: TokenMasks) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [num_masks] and bits [num_masks, num_words] on the device; the step before must have ended."""
        host, on_device = self._made()
        count = len(masks.rows)
        length = count * (1 + self._num_words)
        host.numpy()[:count] = masks.rows
        host.numpy()[count:length] = masks.bits.ravel()
        on_device[:length].copy_(host[:length], non_blocking=True)
        return on_device[:count], on_device[count:length].view(count, self._num_words)

    def _made(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._buffers is None:
            size = self._most_rows * (1 + self._num_words)
            host = torch.zeros(size, dtype=torch.int32, pin_memory=self._device.type == "cuda")
            self._buffers = host, torch.zeros(size, dtype=torch.int32, device=self._device)
        return self._buffers
