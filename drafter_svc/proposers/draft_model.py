"""Drafts with a smaller language model of the target's vocabulary. Knows its forward pass; no laws, no sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

import torch

from drafter_svc.config import NO_ADAPTERS, AdapterSettings
from drafter_svc.proposers.looped import LoopLimits, make_looped
from drafter_svc.proposers.proposer import Limits, Proposal, Proposer, Row
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.kernels.batch import Chunk
from slipstream.models.adapter_slots import AdapterSlots
from slipstream.models.draft_checkpoint import draft_tokens
from slipstream.sampling.draft_law import NUM_CANDIDATES

NAME: Final = "draft_model"


class Runner(Protocol):
    """What is needed of a ModelRunner."""

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor: ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None: ...


class DraftModel:
    """One forward pass per draft step."""

    def __init__(
        self, runner: Runner, limits: Limits, choice: TokenChoice, adapters: AdapterSlots | None = None
    ) -> None:
        self.limits = limits
        self.adapters = adapters
        self._runner = runner
        self._choice = choice

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._runner.copy_blocks(pairs)

    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        drawing = [row for row in rows if row.num_wanted]
        logits = self._runner.forward([_chunk(row) for row in rows])
        proposals = iter(self._choice.choose(logits, drawing))
        return [(next(proposals),) if row.num_wanted else () for row in rows]


def _chunk(row: Row) -> Chunk:
    return Chunk(row.token_ids, row.start, row.block_ids, num_logits=int(row.num_wanted > 0), adapter=row.adapter)


def load_draft_model(
    engine: EngineConfig,
    *,
    num_target_ids: int,
    num_kept: int,
    adapters: AdapterSettings = NO_ADAPTERS,
    loop: LoopLimits | None = None,
) -> Proposer:
    """The proposer of a checkpoint; the checkpoint may know a part of the vocabulary only (`d2t`)."""
    runner = make_runner(replace(engine, cuda_graphs=False))  # its graphs are of verify passes
    choice = load_token_choice(engine, runner, num_target_ids=num_target_ids, num_kept=num_kept)
    slots = AdapterSlots(runner.model, adapters.most, adapters.max_rank) if adapters.wanted else None
    stepwise = DraftModel(runner, limits_of(runner), choice, slots)
    if loop is None or num_kept > NUM_CANDIDATES:
        return stepwise
    return make_looped(stepwise, runner, choice, loop, engine.graph_memory_bytes)


def limits_of(runner: ModelRunner) -> Limits:
    return Limits(
        num_blocks=runner.kv_cache.num_blocks,
        block_size=runner.kv_cache.block_size,
        max_model_len=runner.max_model_len,
        vocab_size=runner.config.vocab_size,
        eos_token_ids=tuple(runner.config.eos_token_ids),
    )


def load_token_choice(engine: EngineConfig, runner: ModelRunner, *, num_target_ids: int, num_kept: int) -> TokenChoice:
    """How tokens are drawn from what this checkpoint's runner puts out."""
    target_ids = draft_tokens(engine.model)
    return TokenChoice(
        vocab_size=runner.config.vocab_size,
        num_target_ids=min(num_target_ids, runner.config.vocab_size),
        num_kept=num_kept,
        target_ids=None if target_ids is None else target_ids.to(engine.device),
    )
