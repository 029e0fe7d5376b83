"""Runs one rank's part of a model. Knows slices of the vocabulary; not how ranks hear of steps.

All ranks take every step together. Rank 0 alone knows requests, and only its verdicts are used: what another rank
computes reaches it as statistics, and nothing that a value decides changes what ranks exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.model_runner import GraphSteps, ModelRunner
from slipstream.engine.rank_steps import CopyBlocks, Forward, Prepare, Replay, Score, SendStep, Step, Verify
from slipstream.engine.scoring import ScoredChunk
from slipstream.exchange import TokenLogprobs
from slipstream.kernels.batch import Chunk
from slipstream.kernels.verification import verify_sliced
from slipstream.models.llama import LlamaModel
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.sliced_verification import AnyCheck, follower_checks
from slipstream.timeline import NO_TIMELINE, Timeline


@runtime_checkable
class Replays(Protocol):
    """A rank's runner that has graphs."""

    def replay(self, step: Replay) -> None:
        """Takes part in a step of rank 0's."""


def verify_slices(runner: ModelRunner, chunks: Sequence[Chunk], checks: Sequence[AnyCheck]) -> list[Verdict]:
    """One step, launched operation by operation, on this rank's slice of the vocabulary."""
    logits = runner.slice_logits(chunks)
    return verify_sliced(logits, checks, runner.vocabulary_slice) if checks else []


class RankRunner(ModelRunner):
    """A runner without graphs."""

    def __init__(
        self,
        model: LlamaModel,
        kv_cache: KVCache,
        max_model_len: int = 0,
        *,
        send: SendStep,
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        super().__init__(model, kv_cache, max_model_len, timeline=timeline)
        self._send = send

    def verify(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        self._send(Verify(chunks, follower_checks(checks, self.config.vocab_size)))
        with self._timeline.span("model", f"{len(chunks)} sequences"):
            return verify_slices(self, chunks, checks)


class LeadingRunner(ModelRunner):
    """What rank 0 uses: it sends every step before it takes it; the inner runner sends those of `launch` itself."""

    def __init__(self, inner: ModelRunner, send: SendStep, explained: Callable[[RuntimeError], RuntimeError]) -> None:
        """`explained` says what is behind an error, such as a rank that has died."""
        super().__init__(inner.model, inner.kv_cache, inner.max_model_len)
        self.feature_tap = inner.feature_tap
        self._inner, self._send, self._explained = inner, send, explained

    @property
    def graph_steps(self) -> GraphSteps:
        return self._inner.graph_steps

    @property
    def expected_end(self) -> float:
        return self._inner.expected_end

    def prepare(self) -> None:
        self._send(Prepare())
        self._inner.prepare()

    def close(self) -> None:
        self._inner.close()

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        self._send(Forward(chunks))
        return self._inner.forward(chunks)

    def score(self, prompts: Sequence[ScoredChunk]) -> Callable[[], list[TokenLogprobs]]:
        self._send(Score(prompts))
        return self._inner.score(prompts)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._send(CopyBlocks(pairs))
        self._inner.copy_blocks(pairs)

    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        with self._explaining():
            finish = self._inner.launch(chunks, checks)

        def finished() -> list[Verdict]:
            with self._explaining():
                return finish()

        return finished

    def verify(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> list[Verdict]:
        return self.launch(chunks, checks)()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._explained(error) from error


def take(runner: ModelRunner, step: Step) -> None:
    """Another rank's part of a step that rank 0 has sent."""
    match step:
        case Prepare():
            runner.prepare()
        case Forward(chunks):
            runner.forward(chunks)
        case Score(prompts):
            runner.score(prompts)()
        case CopyBlocks(pairs):
            runner.copy_blocks(pairs)
        case Verify(chunks, checks):
            verify_slices(runner, chunks, checks)
        case Replay():
            assert isinstance(runner, Replays), "only a runner with graphs is asked to replay them"
            runner.replay(step)
