"""Runs the model over batches of chunks. Knows tensors and blocks; nothing of requests, sampling or scheduling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.config import EngineConfig
from slipstream.engine.batch import Chunk
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel


class ModelRunner:
    """One model and its KV cache."""

    config: ModelConfig  # vocab_size, eos_token_ids, ...
    kv_cache: KVCache  # .num_blocks, .block_size
    max_model_len: int  # most positions a sequence may have

    def __init__(self, model: LlamaModel, kv_cache: KVCache, max_model_len: int = 0) -> None:
        raise NotImplementedError

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Feeds the chunks and returns fp32 logits [sum(num_logits), vocab], in chunk order."""
        raise NotImplementedError

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies KV blocks, each pair (source, destination)."""
        self.kv_cache.copy_blocks(pairs)


def make_runner(config: EngineConfig) -> ModelRunner:
    """Loads the model, decides how many KV blocks it gets, and sets the math library's threads."""
    raise NotImplementedError
