"""Runs the model over batches of chunks. Knows tensors and blocks; nothing of requests, sampling or scheduling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from slipstream.cache.kv_cache import KVCache, bytes_per_block
from slipstream.config import EngineConfig
from slipstream.engine.batch import Chunk, ForwardBatch
from slipstream.engine.feature_tap import FeatureTap, feature_bytes, make_feature_tap
from slipstream.engine.rank_steps import Tell, say_nothing
from slipstream.engine.scoring import ScoredChunk, divided
from slipstream.engine.successor import Successor
from slipstream.exchange import TokenLogprobs
from slipstream.kernels.verification import verify
from slipstream.layers.linear import can_pack
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_config, load_model, open_checkpoint
from slipstream.models.widen import SHAPES, widen, widened_config
from slipstream.parallel.ranks import ALONE, Ranks
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


def make_runner(
    config: EngineConfig,
    *,
    pack_weights: bool = True,
    timeline: Timeline = NO_TIMELINE,
    ranks: Ranks = ALONE,
    tell: Tell = say_nothing,
) -> ModelRunner:
    """Loads the model, decides how many KV blocks it gets, and sets the math library's threads.

    `pack_weights` only changes speed (see layers/linear.py). Of several ranks each loads its part, and rank 0 tells the
    others by `tell` what to do.
    """
    device, dtype = _device(config), _dtype(config)
    if device.type == "cpu":
        torch.set_num_threads(config.num_threads)
    model_config = load_config(open_checkpoint(config.model, config.target_model))
    if config.widen:
        model_config = widened_config(model_config, SHAPES[config.widen])
    max_model_len = _max_model_len(config, model_config)
    share = ranks.shard.share(model_config)
    num_blocks = _num_kv_blocks(config, share, max_model_len)
    model = _load(config, dtype, device, max_model_len, ranks)
    if pack_weights and can_pack(device, dtype):
        model.pack()
    try:
        kv_cache = KVCache(share, num_blocks, config.block_size, dtype, device)
    except RuntimeError as error:  # how torch tells that memory ran out, on any device
        raise ValueError(f"no memory for {num_blocks} KV blocks on {config.device}: {_first_line(error)}") from error
    if ranks.shard.size > 1:
        from slipstream.engine.rank_runner import make_rank_runner  # knows this file

        runner = make_rank_runner(model, kv_cache, max_model_len, config, tell, timeline)
    else:
        runner = _runner(model, kv_cache, max_model_len, config, timeline)
    if config.features is not None:
        runner.tap_features(make_feature_tap(config.features, model_config, kv_cache, dtype))
    return runner


def _runner(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, config: EngineConfig, timeline: Timeline
) -> ModelRunner:
    if model.embedding.device.type == "cuda" and config.cuda_graphs:
        from slipstream.engine.graph_runner import make_graph_runner  # Triton is for GPUs only

        return make_graph_runner(model, kv_cache, max_model_len, config, timeline)
    return ModelRunner(model, kv_cache, max_model_len, timeline=timeline)


def _load(
    config: EngineConfig, dtype: torch.dtype, device: torch.device, max_model_len: int, ranks: Ranks
) -> LlamaModel:
    """Who widens loads the small model whole: each rank makes its part of the large one from that."""
    target, loaded_by = config.target_model, ALONE if config.widen else ranks
    model = load_model(config.model, dtype, device, max_model_len, target=target, ranks=loaded_by)
    return widen(model, SHAPES[config.widen], ranks) if config.widen else model


def _device(config: EngineConfig) -> torch.device:
    try:
        device = torch.device(config.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # an AssertionError: torch was built without CUDA
        raise ValueError(f"device is {config.device!r}, which is not to be had here: {_first_line(error)}") from error
    return device


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _dtype(config: EngineConfig) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, config.dtype)
    return dtype


def _max_model_len(config: EngineConfig, model: ModelConfig) -> int:
    if config.max_model_len > model.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {config.max_model_len}, but {config.model} has {model.max_position_embeddings} positions"
        )
    return config.max_model_len or model.max_position_embeddings


def _num_kv_blocks(config: EngineConfig, model: ModelConfig, max_model_len: int) -> int:
    """What was asked for, else what fits in the memory, at most what full sequences could ever use."""
    blocks_per_sequence = -(-max_model_len // config.block_size)
    block_bytes = bytes_per_block(model, _dtype(config), config.block_size)
    if config.features is not None:
        block_bytes += feature_bytes(config.features, config.block_size)
    fitting = min(config.kv_memory_bytes // block_bytes, config.max_num_seqs * blocks_per_sequence)
    num_blocks = config.num_kv_blocks or fitting
    if num_blocks < 1:
        raise ValueError(
            f"kv_memory_bytes is {config.kv_memory_bytes}; one block of {config.block_size} tokens needs {block_bytes}"
        )
    return num_blocks
