"""Drafts with an EAGLE-3 head, from the target's features, then from its own output. Knows its pass; no sequences.

Token t goes in with the feature of token t - 1, at position t - 1; the first token of a sequence goes in nowhere. What
the head puts out for token t is kept in the slot of its KV: a row without the target's features takes that of the token
before it as its feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from drafter_svc.enumeration import MAX_RANKS
from drafter_svc.proposers.looped import LoopedDraft, LoopLimits
from drafter_svc.proposers.proposer import Limits, Proposal, Proposer, Row
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.cache.kv_cache import KVCache, bytes_per_block
from slipstream.config import EngineConfig
from slipstream.engine.draft_loop import DraftLoop, loop_sizes
from slipstream.engine.eagle3_step import Eagle3Step
from slipstream.engine.feature_buffers import FeatureBuffers
from slipstream.engine.graph_capture import Capture, GraphCapture
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.layers.linear import can_pack
from slipstream.models.eagle3 import Eagle3Model
from slipstream.models.eagle3_checkpoint import load_eagle3
from slipstream.models.loader import open_checkpoint
from slipstream.sampling.draft_law import NUM_CANDIDATES

NAME: Final = "eagle3"


class Eagle3Drafts:
    """One pass of the head per draft step."""

    adapters: Final = None  # none are made for heads

    def __init__(
        self,
        model: Eagle3Model,
        kv_cache: KVCache,  # of one layer
        *,
        max_model_len: int,
        num_target_ids: int,  # ids from here on are padding and never drafted
        num_kept: int,
        target_ids: torch.Tensor | None = None,  # [draft vocab] int64: the token that each logit is for
    ) -> None:
        vocab_size, size = model.config.layer.vocab_size, model.config.hidden_size
        self.limits = Limits(
            num_blocks=kv_cache.num_blocks,
            block_size=kv_cache.block_size,
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            eos_token_ids=tuple(model.config.layer.eos_token_ids),
            feature_size=size,
        )
        self._model, self._kv_cache = model, kv_cache
        self._device, self._dtype = model.embedding.device, model.embedding.dtype
        blocks = kv_cache.num_blocks + 1  # the last one is nobody's
        self._outputs = torch.zeros(blocks, kv_cache.block_size, size, dtype=self._dtype).to(self._device)
        self._choice = TokenChoice(
            vocab_size=vocab_size, num_target_ids=num_target_ids, num_kept=num_kept, target_ids=target_ids
        )

    @torch.inference_mode()
    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._kv_cache.copy_blocks(pairs)
        if pairs:
            sources, destinations = torch.tensor(pairs, device=self._device).unbind(1)
            self._outputs[destinations] = self._outputs[sources]

    @torch.inference_mode()
    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        fed = [row for row in rows if row.end > 1]
        drawing = [row for row in fed if row.num_wanted]
        logits = self._model.logits(self._feed(fed)) if fed else torch.empty(0)
        proposals = iter(self._choice.choose(logits, drawing) if drawing else ())
        return [(next(proposals),) if row.end > 1 and row.num_wanted else () for row in rows]

    def _feed(self, rows: Sequence[Row]) -> torch.Tensor:
        """Outputs [num_drawing, hidden] of the last tokens of those rows that are drawn for."""
        batch = ForwardBatch.build([_chunk(row) for row in rows], self._kv_cache.block_size, self._device)
        outputs: torch.Tensor = self._model(batch, self._features(rows), self._kv_cache)
        self._outputs.flatten(0, 1).index_copy_(0, batch.slot_mapping, outputs)
        return outputs.index_select(0, batch.logits_rows)

    def _features(self, rows: Sequence[Row]) -> torch.Tensor:
        """[num_tokens, hidden]: the target's where a row has them, else the head's own for the token before."""
        own = [self._slot_before(row) for row in rows if row.features is None]
        kept = iter(self._outputs.flatten(0, 1)[torch.tensor(own, dtype=torch.long, device=self._device)].unsqueeze(1))
        return torch.cat([next(kept) if row.features is None else self._as_tensor(row) for row in rows])

    def _slot_before(self, row: Row) -> int:
        assert len(row.token_ids) == 1, "what a token needs of the one before it must have been computed"
        position = row.start - 2
        size = self._kv_cache.block_size
        return row.block_ids[position // size] * size + position % size

    def _as_tensor(self, row: Row) -> torch.Tensor:
        assert row.features is not None
        bits = torch.from_numpy(row.features.copy().view("int16"))
        return bits.view(torch.bfloat16).to(self._device, self._dtype)

    def looped(self, limits: LoopLimits, capture: Capture) -> LoopedDraft:
        """The same, all tokens of a block in one captured loop."""
        step = Eagle3Step(self._model, self._kv_cache, self._outputs, self.limits.max_model_len)
        sizes = loop_sizes(max_rows=limits.max_rows, max_steps=limits.max_steps)
        drafting = self._choice.drafting(MAX_RANKS + 1, self._device)
        loop = DraftLoop(
            step,
            step,
            self._model.logits,
            step.copy_blocks,
            drafting,
            sizes=sizes,
            max_blocks=-(-self.limits.max_model_len // self.limits.block_size),
            capture=capture,
            features=FeatureBuffers(step, max(sizes), self.limits.feature_size, self._device),
        )
        loop.prepare()
        return LoopedDraft(self, loop, drafting)


def _chunk(row: Row) -> Chunk:
    """The row as the head sees it: one position less, the very first token left out."""
    token_ids = row.token_ids if row.start else row.token_ids[1:]
    return Chunk(token_ids, max(0, row.start - 1), row.block_ids, num_logits=int(row.num_wanted > 0))


def load_looped_eagle3_drafts(
    engine: EngineConfig, *, num_target_ids: int, num_kept: int, loop: LoopLimits | None
) -> Proposer:
    """The proposer of a head's folder, by captured loops if they are wanted."""
    stepwise = load_eagle3_drafts(engine, num_target_ids=num_target_ids, num_kept=num_kept)
    if loop is None or num_kept > NUM_CANDIDATES:
        return stepwise
    return stepwise.looped(loop, GraphCapture(torch.device(engine.device), engine.graph_memory_bytes))


def load_eagle3_drafts(engine: EngineConfig, *, num_target_ids: int, num_kept: int) -> Eagle3Drafts:
    """The proposer of a head's folder; `engine.target_model` lends what the head shares with its target."""
    device, dtype = torch.device(engine.device), getattr(torch, engine.dtype)
    if device.type == "cpu":
        torch.set_num_threads(engine.num_threads)
    target = None if engine.target_model is None else open_checkpoint(engine.target_model)
    model, target_ids = load_eagle3(engine.model, dtype, device, target)
    if can_pack(device, dtype):
        model.pack()
    layer = model.config.layer
    max_model_len = engine.max_model_len or layer.max_position_embeddings
    block_bytes = (
        bytes_per_block(layer, dtype, engine.block_size) + engine.block_size * layer.hidden_size * dtype.itemsize
    )
    fitting = min(engine.kv_memory_bytes // block_bytes, engine.max_num_seqs * -(-max_model_len // engine.block_size))
    return Eagle3Drafts(
        model,
        KVCache(layer, engine.num_kv_blocks or max(1, fitting), engine.block_size, dtype, device),
        max_model_len=max_model_len,
        num_target_ids=min(num_target_ids, layer.vocab_size),
        num_kept=num_kept,
        target_ids=target_ids,
    )
