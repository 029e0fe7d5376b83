"""Between TokenLogprobs, PromptLogprobs and their messages. Knows shapes; judges no number."""

from __future__ import annotations

from typing import Final

import numpy as np

from slipstream.errors import InvalidRequest
from slipstream.exchange import PromptLogprobs, TokenLogprobs
from slipstream.wire import arrays
from slipstream.wire.v1 import exchange_pb2 as pb

LOGPROB: Final[np.dtype[np.float32]] = np.dtype("<f4")


def logprobs_to_wire(told: TokenLogprobs) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(
        logprobs=arrays.join((told.logprobs,), LOGPROB),
        top_token_ids=arrays.join((told.top_token_ids,), arrays.ID),
        top_logprobs=arrays.join((told.top_logprobs,), LOGPROB),
    )


def logprobs_from_wire(message: pb.TokenLogprobs) -> TokenLogprobs:
    """Raises InvalidRequest if arrays disagree."""
    logprobs = arrays.read(message.logprobs, LOGPROB, "logprobs")
    top_ids = arrays.read(message.top_token_ids, arrays.ID, "top_token_ids")
    top = arrays.read(message.top_logprobs, LOGPROB, "top_logprobs")
    num_tokens = logprobs.size
    if top_ids.size != top.size or top.size % max(1, num_tokens) or (top.size and not num_tokens):
        raise InvalidRequest(
            f"logprobs has {num_tokens} entries, top_token_ids {top_ids.size} and top_logprobs {top.size}; "
            "send as many likeliest tokens for each token"
        )
    shape = num_tokens, top.size // max(1, num_tokens)
    return TokenLogprobs(logprobs, top_ids.reshape(shape), top.reshape(shape))


def prompt_logprobs_to_wire(told: PromptLogprobs) -> pb.PromptLogprobs:
    return pb.PromptLogprobs(sequence_id=told.sequence_id, start=told.start, logprobs=logprobs_to_wire(told.logprobs))


def prompt_logprobs_from_wire(message: pb.PromptLogprobs) -> PromptLogprobs:
    return PromptLogprobs(message.sequence_id, message.start, logprobs_from_wire(message.logprobs))
