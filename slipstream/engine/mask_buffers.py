"""A step's token masks on their way to the device: pinned on the host, copied in one piece. Knows no grammar."""

from __future__ import annotations

import torch

from slipstream.engine.late_buffer import LateBuffer
from slipstream.sampling.token_masks import TokenMasks
from slipstream.token_bits import num_words


class MaskBuffers:
    """Made for the largest step when masks are first needed: most requests have none."""

    def __init__(self, most_rows: int, vocab_size: int, device: torch.device) -> None:
        self._num_words = num_words(vocab_size)
        self._buffer = LateBuffer(most_rows * (1 + self._num_words), device)

    def upload(self, masks: TokenMasks) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [num_masks] and bits [num_masks, num_words] on the device; the step before must have ended."""
        count = len(masks.rows)
        length = count * (1 + self._num_words)
        words = self._buffer.host.numpy()
        words[:count] = masks.rows
        words[count:length] = masks.bits.ravel()
        self._buffer.upload(length)
        on_device = self._buffer.on_device
        return on_device[:count], on_device[count:length].view(count, self._num_words)
