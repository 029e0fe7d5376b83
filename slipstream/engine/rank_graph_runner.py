"""Replays one rank's part of verify steps from captured graphs, all-reduces included. Every rank has the same ones.

Behind the model's pass come either statistics of slices of the vocabulary and what they decide, on every rank, or the
gathering of all logits, after which rank 0 goes on alone. Rank 0 chooses and tells its choice with the step's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.config import EngineConfig
from slipstream.engine.buckets import Bucket, make_buckets
from slipstream.engine.graph_capture import Capture, GraphCapture
from slipstream.engine.graph_capture import Replay as Replayed
from slipstream.engine.graph_runner import GraphRunner
from slipstream.engine.rank_runner import verify_slices
from slipstream.engine.rank_steps import Replay, SendStep, Verify
from slipstream.kernels.batch import Chunk
from slipstream.kernels.gpu.check_table import Needs
from slipstream.kernels.gpu.verification import verify_table
from slipstream.models.llama import LlamaModel
from slipstream.parallel.ranks import Ranks
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.sliced_verification import follower_checks, needs_whole_vocabulary
from slipstream.timeline import NO_TIMELINE, Timeline


class RankGraphRunner(GraphRunner):
    def __init__(
        self,
        model: LlamaModel,
        kv_cache: KVCache,
        max_model_len: int = 0,
        *,
        buckets: Sequence[Bucket],
        capture: Capture,
        send: SendStep,
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        super().__init__(
            model, kv_cache, max_model_len, buckets=buckets, capture=capture, in_one=False, timeline=timeline
        )
        self._send = send
        self._slice = torch.zeros(self._most_rows, model.share.vocab_size, device=self._device)
        self._gatherings: dict[Bucket, Replayed] = {}
        self._decisions: dict[tuple[Bucket, Needs], Replayed] = {}
        self._whole = False  # whether the step at hand is decided by rank 0 alone

    @torch.inference_mode()
    def replay(self, step: Replay) -> None:
        """Takes part in a step of rank 0's."""
        self._whole = step.whole
        self._buffers.write_again(step.bucket, step.plain, step.words)
        self._buffers.upload(step.bucket, step.plain)
        self._pass(step.bucket, step.tapped)()
        if step.needs and not step.whole:
            self._verification(step.bucket, Needs(step.needs))()
        result = self._results.take()
        result.read()
        self._wait(result, "step")

    def close(self) -> None:
        """NCCL does not end while a graph holds one of its sums."""
        for graphs in (self._passes, self._verifications, self._gatherings, self._decisions):
            graphs.clear()
        self._edits.clear()
        torch.cuda.synchronize(self._device)

    def _write(
        self,
        bucket: Bucket,
        chunks: Sequence[Chunk],
        checks: Sequence[SequenceCheck],
        words: npt.NDArray[np.int32],
        needs: Needs,
    ) -> None:
        super()._write(bucket, chunks, checks, words, needs)
        vocab_size = self.config.vocab_size
        self._whole = any(needs_whole_vocabulary(check, vocab_size) for check in checks)
        plain = needs is Needs.MATCH
        needed, written = needs.value if checks else "", self._buffers.written(bucket, plain)
        self._send(Replay(bucket, self._taps(chunks), self._whole, needed, plain, written))

    def _verify_eagerly(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        self._send(Verify(chunks, follower_checks(checks, self.config.vocab_size)))
        return verify_slices(self, chunks, checks)

    def _write_logits(self, bucket: Bucket, hidden: torch.Tensor) -> None:
        self._model.slice_logits(hidden, self._slice[: bucket.num_rows])

    def _pass(self, bucket: Bucket, tapped: bool) -> Replayed:
        """Ends with all logits where the step needs them."""
        run = super()._pass(bucket, tapped)
        if not self._whole:
            return run
        gather = self._gathering(bucket)

        def run_and_gather() -> None:
            run()
            gather()

        return run_and_gather

    def _gathering(self, bucket: Bucket) -> Replayed:
        if bucket not in self._gatherings:
            self._gatherings[bucket] = self._capture.capture(lambda: self._gather(bucket))
        return self._gatherings[bucket]

    def _gather(self, bucket: Bucket) -> None:
        rows = slice(bucket.num_rows)
        self._logits[rows].copy_(self._model.vocabulary_slice.whole(self._slice[rows]))

    def _verification(self, bucket: Bucket, needs: Needs) -> Replayed:
        if self._whole:
            return super()._verification(bucket, needs)
        key = bucket, needs
        if key not in self._decisions:
            self._decisions[key] = self._capture.capture(lambda: self._decide(bucket, needs))
        return self._decisions[key]

    def _decide(self, bucket: Bucket, needs: Needs) -> None:
        logits, table, own = self._slice[: bucket.num_rows], self._table(bucket, needs), self._model.vocabulary_slice
        verify_table(logits, table, own, into=self._decided[: bucket.num_seqs])


class AgreedCapture:
    """Says that graphs' memory is used up when it is on any rank: else one would capture what another does not."""

    def __init__(self, capture: Capture, ranks: Ranks, device: torch.device) -> None:
        self._capture, self._ranks, self._device = capture, ranks, device

    @property
    def num_bytes(self) -> int:
        return self._capture.num_bytes

    @property
    def is_full(self) -> bool:
        flag = torch.full((1, 1), float(self._capture.is_full), device=self._device)
        return bool(self._ranks.gather(flag).any())

    def capture(self, run: Callable[[], None]) -> Replayed:
        return self._capture.capture(run)


def make_rank_graph_runner(
    model: LlamaModel,
    kv_cache: KVCache,
    max_model_len: int,
    config: EngineConfig,
    send: SendStep,
    timeline: Timeline = NO_TIMELINE,
) -> RankGraphRunner:
    """A runner on this rank's GPU for batches of the configured size."""
    device = model.embedding.device
    capture = AgreedCapture(GraphCapture(device, config.graph_memory_bytes), model.ranks, device)
    most_tokens = max(config.max_num_batched_tokens, config.max_num_seqs)
    buckets = make_buckets(max_num_seqs=config.max_num_seqs, max_num_tokens=most_tokens)
    return RankGraphRunner(
        model, kv_cache, max_model_len, buckets=buckets, capture=capture, send=send, timeline=timeline
    )
