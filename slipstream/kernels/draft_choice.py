"""Draws a draft token for each row of logits by a table of settings, without looking at a value on the host.

Same law, same noise and same guesses as sampling/draft_law.py, which says what they mean, but as a function of tensors
alone: a graph can hold it. What top-k, top-p and min-p leave is looked for among the likeliest tokens. Where they leave
more than those, the law, which is of fewer, is what it is; outcomes are then named as if nothing were removed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from slipstream.exchange import LAW_TOTAL
from slipstream.kernels.dispatch import fused
from slipstream.request import SamplingParams
from slipstream.sampling.draft_law import LAW_SHIFT
from slipstream.sampling.noise import gumbel_noise_at, words_at
from slipstream.sampling.philox import DRAW_BITS, WORD, Stream
from slipstream.sampling.target_law import SMALLEST_TEMPERATURE


class Kind(IntEnum):
    """How a row's token is drawn."""

    GREEDY = 0
    COUPLED = 1
    LAW = 2


class Setting(IntEnum):
    """Words of a row of settings."""

    KIND = 0
    TEMPERATURE = 1  # bits of an fp32, as all that are no integers
    TOP_K = 2  # 0: no limit
    TOP_P = 3
    LEAST_SCORE = 4  # log(min_p): what is further below the top is removed
    SEED_LOW = 5
    SEED_HIGH = 6
    DRAFT_KEY_LOW = 7  # of the draw's high part, too
    DRAFT_KEY_HIGH = 8
    STREAM_WORD = 9  # DRAFT, and the draw's low part
    SAMPLE_INDEX = 10


NUM_SETTINGS = 12  # even: a row begins at a multiple of 8 bytes
TOKEN, CONFIDENCE, FIRST_OUTCOME = 0, 1, 2  # words of a row that is drawn: outcomes, then a law's ids and counts
NO_TOKEN = -1
FEWEST_RANKED = 64


@dataclass(frozen=True, slots=True)
class Drafting:
    """What all rows share."""

    target_ids: torch.Tensor  # [draft vocab] int32: the token that each logit is for; NO_TOKEN: never drafted
    is_whole: bool  # each logit is for the token of its index, or for none
    num_kept: int  # tokens of a law
    num_outcomes: int  # likely outcomes named for each row

    @property
    def width(self) -> int:
        """Words of a row that is drawn."""
        return FIRST_OUTCOME + self.num_outcomes + 2 * self.num_kept

    @property
    def num_ranked(self) -> int:
        """Likeliest tokens among which limits are looked for, a power of two."""
        return max(FEWEST_RANKED, 1 << (self.num_kept - 1).bit_length())


def settings_of(sampling: SamplingParams, kind: Kind, seed: int, sample_index: int) -> tuple[int, ...]:
    """One row's words, the signs of their bits left open; without what a law is drawn with."""
    temperature = max(sampling.temperature, SMALLEST_TEMPERATURE) if not sampling.greedy else 1.0
    limits = (0, 1.0, 0.0) if sampling.greedy else (sampling.top_k, sampling.top_p, sampling.min_p)
    least_score = math.log(limits[2]) if limits[2] else -math.inf
    numbers = (kind, _bits(temperature), limits[0], _bits(limits[1]), _bits(least_score), seed & WORD, seed >> 32)
    return *numbers, 0, 0, 0, sample_index, 0


def with_draw(settings: tuple[int, ...], key: int, draw: int) -> tuple[int, ...]:
    """The same for one draw. `key`: derived from the drafter's own and the draw's part above DRAW_BITS."""
    stream_word = Stream.DRAFT | (draw & (1 << DRAW_BITS) - 1) << 8
    return *settings[: Setting.DRAFT_KEY_LOW], key & WORD, key >> 32, stream_word, *settings[Setting.SAMPLE_INDEX :]


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


GREEDY: Final = settings_of(SamplingParams(temperature=0.0), Kind.GREEDY, 0, 0)  # of padding, for one


def choose_drafts(
    logits: torch.Tensor,  # [num_rows, draft vocab] fp32
    settings: torch.Tensor,  # [num_rows, NUM_SETTINGS] int32
    positions: torch.Tensor,  # [num_rows] int64, of the tokens to be drawn
    drafting: Drafting,
    drawn: torch.Tensor,  # [num_rows, drafting.width] int32, out
    next_ids: torch.Tensor,  # [num_rows] int64, out: the tokens once more, as they are fed
) -> None:
    """Writes each row's token, its probability if it is checked by match, its outcomes, and a law of its logits."""
    if fused(logits):
        from slipstream.kernels.gpu import draft_choice as gpu

        gpu.choose_drafts(logits, settings, positions, drafting, drawn, next_ids)
    else:
        choose_drafts_reference(logits, settings, positions, drafting, drawn, next_ids)


def choose_drafts_reference(
    logits: torch.Tensor,
    settings: torch.Tensor,
    positions: torch.Tensor,
    drafting: Drafting,
    drawn: torch.Tensor,
    next_ids: torch.Tensor,
) -> None:
    kind, target_ids = settings[:, Setting.KIND, None], drafting.target_ids.long()
    logits = logits.masked_fill(target_ids < 0, -torch.inf)
    scores = (logits - logits.amax(-1, keepdim=True)) / _floats(settings, Setting.TEMPERATURE)
    ranked = scores.topk(min(drafting.num_ranked, scores.shape[1]), dim=-1)
    kept, total = _limited(ranked.values, scores.exp().sum(-1, keepdim=True), settings)
    all_ranked = (
        kept[:, -1:].isinf() if drafting.num_ranked <= scores.shape[1] else torch.ones_like(kind, dtype=torch.bool)
    )
    left = torch.where(all_ranked, torch.full_like(scores, -torch.inf).scatter(1, ranked.indices, kept), scores)
    sample_indices = _long(settings, Setting.SAMPLE_INDEX)
    noise = gumbel_noise_at(_keys(settings, Setting.SEED_LOW), positions, sample_indices, target_ids.expand_as(scores))
    outcomes = torch.where(kind == Kind.GREEDY, left, left + noise).topk(min(drafting.num_outcomes, left.shape[1]))
    ids = target_ids[outcomes.indices].masked_fill(outcomes.values.isinf(), NO_TOKEN)
    law_ids, counts = target_ids[ranked.indices[:, : drafting.num_kept]], _counts(kept[:, : drafting.num_kept])
    from_law = _drawn_from(law_ids, counts, settings, positions)
    next_ids.copy_(torch.where(kind == Kind.LAW, from_law, ids[:, :1])[:, 0].clamp_min(0))
    probability = scores.gather(1, outcomes.indices[:, :1]).exp() / total
    confidence = probability.masked_fill(kind == Kind.LAW, 1.0)
    _write(drafting, drawn, (next_ids, confidence[:, 0].view(torch.int32), ids, law_ids, counts))


def _write(
    drafting: Drafting,
    drawn: torch.Tensor,  # [num_rows, drafting.width], out
    parts: tuple[
        torch.Tensor, ...
    ],  # tokens, confidences, outcomes, ids and counts of laws; the last three may be short
) -> None:
    first_law, first_count = FIRST_OUTCOME + drafting.num_outcomes, drafting.width - drafting.num_kept
    drawn.fill_(NO_TOKEN)
    drawn[:, first_count:] = 0
    drawn[:, TOKEN], drawn[:, CONFIDENCE] = parts[:2]
    for start, words in zip((FIRST_OUTCOME, first_law, first_count), parts[2:], strict=True):
        drawn[:, start : start + words.shape[1]] = words


def _limited(
    scores: torch.Tensor,  # [num_rows, num_ranked], likeliest first, the first one 0
    total: torch.Tensor,  # [num_rows, 1] weight of the whole vocabulary
    settings: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Top-k, top-p, min-p, in this order: scores, -inf where removed, and the weight that is left."""
    size = scores.shape[1]
    top_k = settings[:, Setting.TOP_K, None].long()
    by_rank = (top_k > 0) & (top_k <= size)
    kth = scores.gather(1, (top_k - 1).clamp(0, size - 1))
    scores = scores.masked_fill(by_rank & (scores < kth), -torch.inf)
    weights = scores.exp()
    total = torch.where(by_rank, weights.sum(-1, keepdim=True), total)
    top_p = _floats(settings, Setting.TOP_P)
    reached = (weights.cumsum(-1) >= top_p * total) & (top_p < 1)
    least = scores.gather(1, reached.int().argmax(-1, keepdim=True))
    least = least.masked_fill(~reached.any(-1, keepdim=True), -torch.inf)
    least = torch.maximum(least, _floats(settings, Setting.LEAST_SCORE))
    scores = scores.masked_fill(scores < least, -torch.inf)
    all_ranked = scores[:, -1:].isinf()  # nothing is left but what is here
    return scores, torch.where(all_ranked, scores.exp().sum(-1, keepdim=True), total)


def _counts(
    scores: torch.Tensor,  # [num_rows, num_kept], likeliest first
) -> torch.Tensor:
    """Of LAW_TOTAL, [num_rows, num_kept] int32; what rounding leaves goes to the likeliest."""
    counts = (scores.softmax(-1) * LAW_TOTAL).int()
    rest = LAW_TOTAL - counts.sum(-1, keepdim=True, dtype=torch.int32)
    return torch.cat((counts[:, :1] + rest, counts[:, 1:]), -1)


def _drawn_from(
    token_ids: torch.Tensor,  # [num_rows, num_kept] int64
    counts: torch.Tensor,  # [num_rows, num_kept] int32
    settings: torch.Tensor,
    positions: torch.Tensor,  # [num_rows] int64
) -> torch.Tensor:
    """[num_rows, 1]: from exactly counts / LAW_TOTAL, with the row's own DRAFT noise."""
    words = words_at(
        _keys(settings, Setting.DRAFT_KEY_LOW),
        positions,
        _long(settings, Setting.SAMPLE_INDEX),
        _long(settings, Setting.STREAM_WORD),
    )
    columns = (counts.cumsum(-1) <= (words >> LAW_SHIFT)[:, None]).sum(-1, keepdim=True)
    return token_ids.gather(1, columns.clamp_max(token_ids.shape[1] - 1))  # of padding, whose logits may be NaN


def _floats(settings: torch.Tensor, which: Setting) -> torch.Tensor:
    """[num_rows, 1]"""
    return settings[:, which, None].contiguous().view(torch.float32)


def _long(settings: torch.Tensor, which: Setting) -> torch.Tensor:
    """[num_rows] int64, of 32 bits without a sign."""
    return settings[:, which].long() & WORD


def _keys(settings: torch.Tensor, low: Setting) -> torch.Tensor:
    """[num_rows] int64, the bits of a 64-bit key."""
    return _long(settings, low) | settings[:, low + 1].long() << 32


def table_of(rows: Sequence[tuple[int, ...]]) -> npt.NDArray[np.int32]:
    """Rows of `settings_of` as a table: [num_rows, NUM_SETTINGS]."""
    return np.array(rows, dtype=np.uint32).view(np.int32).reshape(len(rows), NUM_SETTINGS)
