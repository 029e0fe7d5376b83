"""Chooses how draft steps are run: the fastest way that suits model, device and number of rows. Knows no kernels.

A fast step is believed once it has given what the plain one gives, on this GPU and this model. If it does not, or its
kernels do not build, drafting goes on without it: a drafter may be slow, and must not fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_step import DraftStep, PlainStep
from slipstream.models.llama import LlamaModel

MOST_ROWS = 16  # beyond, the separate kernels are faster
TRIED_ROWS = (1, 8)
TRIED_CONTEXT = 40  # tokens
TOLERANCE = 0.1  # of the hidden states' norm: two right ways through 30 layers in bf16 differ by .05
_LOG = logging.getLogger(__name__)


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
    """What was asked for if it suits the model, else the plain step. Nothing may be in the KV cache yet."""
    plain = PlainStep(model, kv_cache, max_model_len)
    if kind is StepKind.SEPARATE or not _suits(model):
        return plain
    return believed(lambda: _make_fast(model, kv_cache, max_model_len, kind), plain, kv_cache, max_model_len)


def believed(make_fast: Callable[[], DraftStep], plain: DraftStep, kv_cache: KVCache, max_model_len: int) -> DraftStep:
    """Both, if the fast step does the same as the plain one; else that alone."""
    try:
        fast = make_fast()
        error = max(_difference(fast, plain, kv_cache, max_model_len, num_rows) for num_rows in TRIED_ROWS)
    except Exception as refusal:  # Triton's errors have no class in common but this
        _LOG.warning("draft steps run as separate kernels: %s", str(refusal).partition("\n")[0])
        return plain
    if not error <= TOLERANCE:  # a NaN is not
        _LOG.warning("draft steps run as separate kernels: fused, they are wrong by %.3f", error)
        return plain
    return SwitchedStep(fast, plain, MOST_ROWS)


def _make_fast(model: LlamaModel, kv_cache: KVCache, max_model_len: int, kind: StepKind) -> DraftStep:
    from slipstream.engine.fused_step import FusedStep, PersistentStep  # Triton is for GPUs only
    from slipstream.kernels.gpu.draft_step.plan import unsuited

    programs = torch.cuda.get_device_properties(model.embedding.device).multi_processor_count
    if (reason := unsuited(model.config, programs)) is not None:
        raise ValueError(f"no fused kernels for this model: {reason}")
    made = PersistentStep if kind is StepKind.PERSISTENT else FusedStep
    return made(model, kv_cache, max_model_len, num_programs=programs)


def _suits(model: LlamaModel) -> bool:
    return model.embedding.is_cuda and model.dtype == torch.bfloat16 and model.ranks.shard.size == 1


@torch.inference_mode()
def _difference(fast: DraftStep, plain: DraftStep, kv_cache: KVCache, max_model_len: int, num_rows: int) -> float:
    """Between the hidden states of both, relative. Each row has blocks of its own, if there are as many."""
    device = kv_cache.keys[0].device
    max_blocks = -(-max_model_len // kv_cache.block_size)
    rows, blocks = (torch.arange(number, device=device) for number in (num_rows, max_blocks))
    contexts = min(TRIED_CONTEXT, max_model_len) - rows
    own_blocks = -(-TRIED_CONTEXT // kv_cache.block_size)
    tables = (rows[:, None] * own_blocks + blocks) % kv_cache.num_blocks
    expected = plain(rows, contexts, tables).double()
    difference = fast(rows, contexts, tables).double() - expected
    return float((difference.norm() / expected.norm()).item())
