"""One pass of an EAGLE-3 head in which every row is one token. Launches only, so that graphs can hold it; no requests.

A token's KV, and what the head put out for it, lie in the slot of the position before its own (models/eagle3.py). What
a row is fed with is what lies there for the token before: the head's output, or the target's feature once it was put.
"""

from __future__ import annotations

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.batch import ForwardBatch
from slipstream.kernels.copy_blocks import copy_blocks
from slipstream.kernels.token_rows import place_tokens
from slipstream.models.eagle3 import Eagle3Model


class Eagle3Step:
    """A DraftStep, whose context lengths are those of tokens, as they are for other models."""

    def __init__(
        self,
        model: Eagle3Model,
        kv_cache: KVCache,  # of one layer
        outputs: torch.Tensor,  # [num_blocks + 1, block_size, hidden], by slot; the last block is nobody's
        max_model_len: int,
    ) -> None:
        self._model, self._kv_cache, self._max_model_len = model, kv_cache, max_model_len
        self._outputs, self._nowhere = outputs, outputs.shape[1] * (len(outputs) - 1)

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        """Outputs [num_rows, hidden]; arguments as DraftStep has them."""
        num_rows, contexts = len(token_ids), (context_lens - 1).clamp_min(0)
        positions, slots = place_tokens(contexts, block_tables, self._kv_cache.block_size)
        every = torch.arange(num_rows + 1, device=token_ids.device)
        batch = ForwardBatch(
            token_ids=token_ids,
            positions=positions,
            slot_mapping=slots,
            block_tables=block_tables,
            query_starts=every,
            context_lens=contexts,
            logits_rows=every[:-1],
            spans=((1, self._max_model_len),) * num_rows,
            block_size=self._kv_cache.block_size,
        )
        features = self._by_slot.index_select(0, self._slots_before(context_lens, block_tables))
        outputs: torch.Tensor = self._model(batch, features, self._kv_cache)
        self._by_slot.index_copy_(0, slots.masked_fill(slots < 0, self._nowhere), outputs)
        return outputs

    def put_features(
        self,
        features: torch.Tensor,  # [num_rows, hidden], the target's of the token before each row's
        given: torch.Tensor,  # [num_rows] bool: which of them there are
        context_lens: torch.Tensor,
        block_tables: torch.Tensor,
    ) -> None:
        """In place of the head's own outputs; the row that needs them is fed next."""
        slots = self._slots_before(context_lens, block_tables)
        self._by_slot.index_copy_(0, slots.masked_fill(~given, self._nowhere), features.to(self._outputs.dtype))

    def copy_blocks(self, pairs: torch.Tensor) -> None:
        """KV and outputs, as KVCache.copy_listed_blocks has it."""
        self._kv_cache.copy_listed_blocks(pairs)
        copy_blocks(self._outputs[None, None], pairs)

    @property
    def _by_slot(self) -> torch.Tensor:
        """[slots, hidden]"""
        return self._outputs.flatten(0, 1)

    def _slots_before(self, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        """Of the tokens before; of one that has none before it, nobody's."""
        contexts = (context_lens - 2).clamp_min(0)
        slots = place_tokens(contexts, block_tables, self._kv_cache.block_size)[1]
        return slots.masked_fill(slots < 0, self._nowhere)
