"""Chooses how draft steps are run: the fastest way that suits model, device and number of rows. Knows no kernels."""

from __future__ import annotations

from enum import StrEnum

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_step import DraftStep, PlainStep
from slipstream.models.llama import LlamaModel

MOST_ROWS = 32  # beyond, the separate kernels are as fast


class StepKind(StrEnum):
    SEPARATE = "separate"  # a launch for every operation
    FUSED = "fused"  # five a layer
    PERSISTENT = "persistent"  # one


class SwitchedStep:
    """A fast step for few rows, the plain one for more."""

    def __init__(self, fast: DraftStep, plain: DraftStep, most_rows: int) -> None:
        self._fast, self._plain, self._most_rows = fast, plain, most_rows

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        step = self._fast if len(token_ids) <= self._most_rows else self._plain
        return step(token_ids, context_lens, block_tables)

    @property
    def error(self) -> torch.Tensor | None:
        """Not 0: a result may be wrong, and this step should not be used any more."""
        return getattr(self._fast, "error", None)


def make_draft_step(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, kind: StepKind = StepKind.PERSISTENT
) -> DraftStep:
    """What was asked for if it suits the model, else the plain step."""
    plain = PlainStep(model, kv_cache, max_model_len)
    if kind is StepKind.SEPARATE or not _suits(model):
        return plain
    from slipstream.engine.fused_step import FusedStep, PersistentStep  # Triton is for GPUs only
    from slipstream.kernels.gpu.draft_step.plan import unsuited

    programs = torch.cuda.get_device_properties(model.embedding.device).multi_processor_count
    if unsuited(model.config, programs) is not None:
        return plain
    made = PersistentStep if kind is StepKind.PERSISTENT else FusedStep
    return SwitchedStep(made(model, kv_cache, max_model_len, num_programs=programs), plain, MOST_ROWS)


def _suits(model: LlamaModel) -> bool:
    return model.embedding.is_cuda and model.dtype == torch.bfloat16 and model.ranks.shard.size == 1
