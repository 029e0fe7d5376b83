"""Whether the ids that a request names are tokens of its model. Knows ids and their number; knows no model."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.errors import InvalidRequest
from slipstream.request import SamplingParams


def check_ids(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Raises InvalidRequest naming the field, an id that is none, and the range."""
    for extreme in (min(token_ids, default=0), max(token_ids, default=0)):
        if not 0 <= extreme < vocab_size:
            raise InvalidRequest(f"{name} holds token id {extreme}; ids must be in 0..{vocab_size - 1}")


def check_sampling_ids(sampling: SamplingParams, vocab_size: int) -> None:
    """The same for every field of these that names ids."""
    check_ids("stop_token_ids", sampling.stop_token_ids, vocab_size)
    check_ids("logit_bias", [token_id for token_id, _ in sampling.logit_bias], vocab_size)
    check_ids("allowed_token_ids", sampling.allowed_token_ids, vocab_size)
    check_ids("bad_words", [token_id for word in sampling.bad_words for token_id in word], vocab_size)
