"""What is asked about prompt tokens besides their KV: how likely the model made each. Knows tokens; no request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from slipstream.exchange import TokenLogprobs
from slipstream.kernels.batch import Chunk


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """Tokens to feed, and the one that follows each: that one's log probability is wanted."""

    chunk: Chunk  # logits are wanted for all of its tokens
    next_ids: Sequence[int]  # as many
    num_top: int  # likeliest tokens to name beside each


def divided(told: TokenLogprobs, chunks: Sequence[ScoredChunk]) -> list[TokenLogprobs]:
    """Those of all chunks one after another, cut into each chunk's own."""
    ends = accumulate((len(one.next_ids) for one in chunks), initial=0)
    return [told[start:end].narrowed(one.num_top) for one, (start, end) in zip(chunks, pairwise(ends), strict=True)]
