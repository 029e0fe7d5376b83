"""Which tokens of one sequence's prompt are still to be scored, and what was said of them. Knows no tensor, no step."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.engine.scheduler import Share
from slipstream.engine.scoring import ScoredChunk
from slipstream.exchange import PromptLogprobs, TokenLogprobs
from slipstream.kernels.batch import Chunk
from slipstream.request import SequenceRequest

MAX_PART_TOKENS = 4096  # with 20 likeliest tokens each, a message of 700 KB


class PromptScores:
    """Nothing precedes position 0, so the first score is that of position 1, made where position 0 is fed."""

    def __init__(self, request: SequenceRequest) -> None:
        self._sequence_id = request.sequence_id
        self._num_prompt_tokens = request.num_prompt_tokens
        self._num_top = request.sampling.num_top_logprobs
        self._num_sent = 1 if request.sampling.prompt_logprobs else request.num_prompt_tokens

    def chunk(self, share: Share, *, wants_features: bool) -> ScoredChunk | None:
        """The share's first tokens that are followed by a token of the prompt; None once all scores are sent."""
        if self._num_sent == self._num_prompt_tokens:
            return None
        engine = share.sequence
        start, end = engine.num_computed, min(engine.num_computed + share.num_tokens, self._num_prompt_tokens - 1)
        if start >= end:
            return None
        fed = Chunk(engine.token_ids[start:end], start, engine.table.block_ids, end - start, wants_features)
        return ScoredChunk(fed, engine.token_ids[start + 1 : end + 1], self._num_top)

    def take(self, scored: ScoredChunk, logprobs: TokenLogprobs) -> Iterator[PromptLogprobs]:
        """What of it is new, in parts: after a preemption, positions that were sent are computed once more."""
        first = scored.chunk.start + 1
        while self._num_sent < first + len(logprobs):
            start = self._num_sent
            part = logprobs[start - first :][:MAX_PART_TOKENS]
            self._num_sent += len(part)
            yield PromptLogprobs(self._sequence_id, start, part)
