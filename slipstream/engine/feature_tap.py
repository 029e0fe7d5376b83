"""Features of committed tokens, for drafters that build on the target's states: made in its passes, kept beside the KV.

Knows tensors and blocks: a token's feature lies in the slot of its KV, so whatever shares or frees a block, or finds it
by its hash, has the features too. Knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.errors import CheckpointError
from slipstream.models.config import ModelConfig
from slipstream.models.eagle3 import FeatureProjection
from slipstream.models.eagle3_checkpoint import feature_fingerprint, load_eagle3_config, load_projection

FEATURE_DTYPE = torch.bfloat16  # as stored and as sent


@dataclass(frozen=True, slots=True)
class FeatureSpan:
    """Tokens `start` to `end` of one sequence."""

    block_ids: Sequence[int]  # its block table
    start: int
    end: int


class FeatureTap:
    def __init__(
        self,
        layer_ids: Sequence[int],  # whose incoming states are tapped (LlamaModel.forward_tapped)
        projection: FeatureProjection,
        *,
        fingerprint: str,
        num_blocks: int,
        block_size: int,
        device: torch.device,
    ) -> None:
        self.layer_ids = tuple(layer_ids)
        self.size = projection.size
        self.fingerprint = fingerprint  # of the head, as its drafter knows it too
        self._projection = projection
        self._block_size = block_size
        # One slot more than tokens: padding writes there.
        self._slots = torch.zeros(num_blocks * block_size + 1, self.size, dtype=FEATURE_DTYPE, device=device)

    def record(
        self,
        states: Sequence[torch.Tensor],  # [num_tokens, target hidden], one for each tapped layer
        slot_mapping: torch.Tensor,  # [num_tokens], -1 = padding
    ) -> None:
        """Writes the features of a pass. Launches only, so it may be captured."""
        slots = torch.where(slot_mapping < 0, len(self._slots) - 1, slot_mapping).long()
        self._slots.index_copy_(0, slots, self._projection(states).to(FEATURE_DTYPE))

    def read(self, spans: Sequence[FeatureSpan]) -> list[bytes]:
        """The features of each span, raw bf16, [end - start, size]. One copy from the device, which waits for it."""
        positions = [np.arange(span.start, span.end) for span in spans]
        slots = [
            np.asarray(span.block_ids)[where // self._block_size] * self._block_size + where % self._block_size
            for span, where in zip(spans, positions, strict=True)
        ]
        chosen = torch.from_numpy(np.concatenate(slots)).to(self._slots.device)
        rows = self._slots.index_select(0, chosen).view(torch.int16).cpu().numpy()
        ends = np.cumsum([0, *(len(where) for where in positions)]).tolist()
        return [rows[start:end].tobytes() for start, end in pairwise(ends)]


def make_feature_tap(folder: Path, target: ModelConfig, kv_cache: KVCache, dtype: torch.dtype) -> FeatureTap:
    """The tap for the EAGLE-3 head in `folder`, on the device of the cache. Raises CheckpointError if it fits not."""
    config = load_eagle3_config(folder)
    if config.target_hidden_size != target.hidden_size:
        raise CheckpointError(
            f"{folder}: is made for hidden states of {config.target_hidden_size}, and the target's have "
            f"{target.hidden_size}; it is no head for this target"
        )
    try:
        layer_ids = config.tapped_layers(target.num_layers)
    except ValueError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    device = kv_cache.keys[0].device
    return FeatureTap(
        layer_ids,
        load_projection(folder, dtype, device),
        fingerprint=feature_fingerprint(folder),
        num_blocks=kv_cache.num_blocks,
        block_size=kv_cache.block_size,
        device=device,
    )


def feature_bytes(folder: Path, block_size: int) -> int:
    """Memory of the features of one block for the head in `folder`."""
    return block_size * load_eagle3_config(folder).hidden_size * FEATURE_DTYPE.itemsize
