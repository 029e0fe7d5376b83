"""One pass of a draft model in which every row is one token. Launches only, so that graphs can hold it; no requests.

Rows may share blocks: two tokens of one path that are fed together are two rows. So all keys and values of a pass are
written before any of its rows attends, layer by layer.
"""

from __future__ import annotations

from typing import Protocol

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.batch import ForwardBatch
from slipstream.kernels.low_rank import RowGroups
from slipstream.kernels.token_rows import place_tokens
from slipstream.models.llama import LlamaModel

MOST_ROWS = 4096


class DraftStep(Protocol):
    def __call__(
        self,
        token_ids: torch.Tensor,  # [num_rows] int64; of padding any valid id
        context_lens: torch.Tensor,  # [num_rows] int64: the token's position + 1; 0 for padding, which writes no KV
        block_tables: torch.Tensor,  # [num_rows, max_blocks] int64
    ) -> torch.Tensor:
        """Normalised hidden states [num_rows, hidden]; those of padding are nonsense."""


class AdaptedStep(DraftStep, Protocol):
    """One that can add what adapters say of its rows."""

    def __call__(
        self,
        token_ids: torch.Tensor,
        context_lens: torch.Tensor,
        block_tables: torch.Tensor,
        adapted: RowGroups | None = None,
    ) -> torch.Tensor: ...


class PlainStep:
    """The model layer by layer, as it always runs. The reference of anything that is faster."""

    def __init__(self, model: LlamaModel, kv_cache: KVCache, max_model_len: int) -> None:
        self._model, self._kv_cache, self._max_model_len = model, kv_cache, max_model_len
        self._every = torch.arange(MOST_ROWS + 1, device=model.embedding.device)

    def __call__(
        self,
        token_ids: torch.Tensor,
        context_lens: torch.Tensor,
        block_tables: torch.Tensor,
        adapted: RowGroups | None = None,
    ) -> torch.Tensor:
        num_rows = len(token_ids)
        every = self._every[: num_rows + 1]
        positions, slots = place_tokens(context_lens, block_tables, self._kv_cache.block_size)
        batch = ForwardBatch(
            token_ids=token_ids,
            positions=positions,
            slot_mapping=slots,
            block_tables=block_tables,
            query_starts=every,
            context_lens=context_lens,
            logits_rows=every[:-1],
            spans=((1, self._max_model_len),) * num_rows,
            block_size=self._kv_cache.block_size,
            adapted=adapted,
        )
        hidden: torch.Tensor = self._model(batch, self._kv_cache)
        return hidden
