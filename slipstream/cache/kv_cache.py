"""The tensors that hold keys and values, in blocks. Knows nothing of requests, nor of which block is whose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from slipstream.kernels.copy_blocks import copy_blocks
from slipstream.models.config import ModelConfig


def bytes_per_block(config: ModelConfig, dtype: torch.dtype, block_size: int) -> int:
    """Memory of one block: keys and values of `block_size` tokens in every layer."""
    return 2 * config.num_layers * block_size * config.num_kv_heads * config.head_dim * dtype.itemsize


class KVCache:
    """Keys and values of every layer, each [num_blocks, block_size, num_kv_heads, head_dim]."""

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (2, config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        # Zeros, not empty: attention multiplies masked slots by 0, and 0 * NaN would leak out of them.
        self._data = torch.zeros(shape, dtype=dtype, device=device)
        self.keys: tuple[torch.Tensor, ...] = tuple(self._data[0])
        self.values: tuple[torch.Tensor, ...] = tuple(self._data[1])
        self.num_blocks = num_blocks
        self.block_size = block_size

    @property
    def stacked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of all layers together, each [num_layers, num_blocks, block_size, num_kv_heads, head_dim]."""
        return self._data[0], self._data[1]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole blocks, each pair (source, destination), in every layer. No destination may be a source."""
        if not pairs:
            return
        sources, destinations = torch.tensor(pairs, device=self._data.device).unbind(1)
        self._data[:, :, destinations] = self._data[:, :, sources]

    def copy_listed_blocks(self, pairs: torch.Tensor) -> None:
        """The same of pairs [num_pairs, 2] int32 on the device, within a graph; none where the source is negative."""
        copy_blocks(self._data, pairs)
