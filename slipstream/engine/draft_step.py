"""One pass of a draft model in which every row is one token. Launches only, so that graphs can hold it; no requests.

Rows may share blocks: two tokens of one path that are fed together are two rows. So all keys and values of a pass are
written before any of its rows attends, layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.batch import ForwardBatch
from slipstream.kernels.low_rank import RowGroups
from slipstream.models.llama import LlamaModel


@dataclass(frozen=True, slots=True)
class StepRows:
    """What lies beyond the rows in use is padding: it writes no KV and nobody reads what comes out of it."""

    token_ids: torch.Tensor  # [num_rows] int64, any valid id for padding
    positions: torch.Tensor  # [num_rows] int64, 0 for padding
    slots: torch.Tensor  # [num_rows] int64: block * block_size + offset; -1 for padding
    context_lens: torch.Tensor  # [num_rows] int32: position + 1, the token itself included; 0 for padding
    block_tables: torch.Tensor  # [num_rows, max_blocks] int32
    adapted: RowGroups | None = None  # rows by their adapters


class DraftStep(Protocol):
    def __call__(
        self,
        rows: StepRows,
        logits_rows: torch.Tensor | None,  # [num_wanted] int64; None: all rows
    ) -> torch.Tensor:
        """fp32 logits [num_wanted, draft vocab]. Waits for nothing and looks at no value on the host."""


class PlainStep:
    """The model layer by layer, as it always runs. The reference of anything that is faster."""

    def __init__(self, model: LlamaModel, kv_cache: KVCache, max_model_len: int) -> None:
        self._model, self._kv_cache, self._max_model_len = model, kv_cache, max_model_len

    def __call__(self, rows: StepRows, logits_rows: torch.Tensor | None) -> torch.Tensor:
        num_rows = len(rows.token_ids)
        every = torch.arange(num_rows + 1, device=rows.positions.device)
        batch = ForwardBatch(
            token_ids=rows.token_ids,
            positions=rows.positions,
            slot_mapping=rows.slots,
            block_tables=rows.block_tables,
            query_starts=every,
            context_lens=rows.context_lens,
            logits_rows=every[:-1] if logits_rows is None else logits_rows,
            spans=((1, self._max_model_len),) * num_rows,
            block_size=self._kv_cache.block_size,
            adapted=rows.adapted,
        )
        return self._model.logits(self._model(batch, self._kv_cache))
