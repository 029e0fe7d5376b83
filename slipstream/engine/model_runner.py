"""Runs the model over batches of chunks. Knows tensors and blocks; nothing of requests, sampling or scheduling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.feature_tap import FeatureTap
from slipstream.engine.scoring import ScoredChunk, divided
from slipstream.engine.successor import Successor
from slipstream.exchange import TokenLogprobs
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.kernels.verification import verify
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import ROWS_AT_ONCE, numbers_on, read_scores, score
from slipstream.sampling.vocabulary_slice import VocabularySlice
from slipstream.timeline import NO_TIMELINE, Timeline


@dataclass(frozen=True, slots=True)
class GraphSteps:
    replayed: int = 0
    eager: int = 0  # beyond the largest size, where graphs are in use
    num_bytes: int = 0  # that the graphs hold


class ModelRunner:
    """One model and its KV cache."""

    config: ModelConfig  # vocab_size, eos_token_ids, ...
    kv_cache: KVCache  # .num_blocks, .block_size
    max_model_len: int  # most positions a sequence may have

    def __init__(
        self, model: LlamaModel, kv_cache: KVCache, max_model_len: int = 0, *, timeline: Timeline = NO_TIMELINE
    ) -> None:
        self._model = model
        self._device = model.embedding.device
        self._timeline = timeline
        self.config = model.config
        self.kv_cache = kv_cache
        self.max_model_len = max_model_len or model.config.max_position_embeddings
        self.feature_tap: FeatureTap | None = None

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Feeds the chunks and returns fp32 logits [sum(num_logits), vocab], in chunk order."""
        batch = ForwardBatch.build(chunks, self.kv_cache.block_size, self._device)
        return self._model.logits(self._hidden(batch, self._taps(chunks)))

    @torch.inference_mode()
    def slice_logits(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """The same of the tokens that this rank holds: `vocabulary_slice` says which."""
        batch = ForwardBatch.build(chunks, self.kv_cache.block_size, self._device)
        return self._model.slice_logits(self._hidden(batch, self._taps(chunks)))

    @property
    def vocabulary_slice(self) -> VocabularySlice:
        return self._model.vocabulary_slice

    @property
    def model(self) -> LlamaModel:
        return self._model

    def tap_features(self, tap: FeatureTap) -> None:
        """From now on, before anything is prepared, chunks may want features."""
        self.feature_tap = tap

    def _taps(self, chunks: Sequence[Chunk]) -> bool:
        """Whether this step makes features: all its tokens' then, for they cost a product and no more."""
        return self.feature_tap is not None and any(chunk.wants_features for chunk in chunks)

    def _hidden(self, batch: ForwardBatch, tapped: bool) -> torch.Tensor:
        """Hidden states of the wanted rows."""
        if not tapped:
            return self._model.forward(batch, self.kv_cache)
        assert self.feature_tap is not None
        hidden, states = self._model.forward_tapped(batch, self.kv_cache, self.feature_tap.layer_ids)
        self.feature_tap.record(states, batch.slot_mapping)
        return hidden

    @property
    def graph_steps(self) -> GraphSteps:
        """How many steps were replayed, and what that takes."""
        return GraphSteps()

    @property
    def expected_end(self) -> float:
        """When what was launched last is probably done, by time.monotonic(); long ago where that is not known."""
        return 0.0

    def prepare(self) -> None:
        """Makes what later steps would have to wait for."""

    def close(self) -> None:
        """Gives up what was prepared."""

    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        """Starts a step if it can run beside its caller; the result waits for it. One at a time."""
        return lambda: self.verify(chunks, checks)

    def follow_steps(self) -> None:
        """From now on, before anything is prepared, `launch_after` may be called, where that is possible at all."""

    @property
    def can_follow(self) -> bool:
        """Whether `launch_after` ever starts anything."""
        return False

    def launch_after(self, successors: Sequence[Successor]) -> Callable[[], list[tuple[int, int]]] | None:
        """Starts the step behind the one under way, before it is known how that one ends; None if that cannot be.

        One successor for each check under way; the result gives draft tokens accepted and the token after them.
        """
        return None

    def verify(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        """One whole step: feeds the chunks and verifies the checks of those that want logits, in their order."""
        with self._timeline.span("model", f"{len(chunks)} sequences"):
            logits = self.forward(chunks)
        with self._timeline.span("verification", f"{len(checks)} sequences"):
            return verify(logits, checks) if checks else []

    @torch.inference_mode()
    def score(self, prompts: Sequence[ScoredChunk]) -> Callable[[], list[TokenLogprobs]]:
        """Feeds prompt tokens and scores the one after each; the result, one per chunk, waits for it.

        Never all logits at once: a prompt of thousands of tokens has gigabytes of them.
        """
        chunks = [one.chunk for one in prompts]
        batch = ForwardBatch.build(chunks, self.kv_cache.block_size, self._device)
        hidden = self._hidden(batch, self._taps(chunks))
        next_ids = numbers_on(self._device, [token_id for one in prompts for token_id in one.next_ids])
        num_top = max(one.num_top for one in prompts)
        parts = zip(torch.split(hidden, ROWS_AT_ONCE), torch.split(next_ids, ROWS_AT_ONCE), strict=True)
        words = torch.cat([score(self._model.logits(some), ids, num_top) for some, ids in parts])
        return lambda: divided(read_scores(words), prompts)

    @torch.inference_mode()
    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies KV blocks, each pair (source, destination)."""
        self.kv_cache.copy_blocks(pairs)
