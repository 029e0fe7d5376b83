"""Log probabilities survive the wire, and arrays that disagree are named."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import Commit, CommitBatch, PromptLogprobs, TokenLogprobs
from slipstream.wire.commits import commit_batch_from_wire, commit_batch_to_wire, commit_from_wire, commit_to_wire
from slipstream.wire.logprobs import logprobs_from_wire
from slipstream.wire.v1 import exchange_pb2 as pb


def told(num_tokens: int, num_top: int) -> TokenLogprobs:
    return TokenLogprobs(
        -np.arange(num_tokens, dtype=np.float32) / np.float32(3),
        np.arange(num_tokens * num_top, dtype=np.int32).reshape(num_tokens, num_top),
        -np.arange(num_tokens * num_top, dtype=np.float32).reshape(num_tokens, num_top) / np.float32(7),
    )


def same(left: TokenLogprobs, right: TokenLogprobs) -> bool:
    pairs = (
        (left.logprobs, right.logprobs),
        (left.top_token_ids, right.top_token_ids),
        (left.top_logprobs, right.top_logprobs),
    )
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("num_top", [0, 3])
def test_a_commit_and_parts_of_a_prompt_come_through_bit_by_bit(num_top: int) -> None:
    sent = CommitBatch(
        (Commit(1, 5, (7, 8), logprobs=told(2, num_top)), Commit(2, 5, (9,))),
        prompt_logprobs=(PromptLogprobs(3, 1, told(4, num_top)),),
    )
    got = commit_batch_from_wire(pb.CommitBatch.FromString(commit_batch_to_wire(sent).SerializeToString()))
    assert got.commits[0].logprobs is not None
    assert same(got.commits[0].logprobs, told(2, num_top))
    assert got.commits[1].logprobs is None
    (part,) = got.prompt_logprobs
    assert (part.sequence_id, part.start) == (3, 1)
    assert same(part.logprobs, told(4, num_top))


@pytest.mark.parametrize(
    ("num_ids", "num_top", "wrong"),
    [(4, 3, "top_token_ids 4 and top_logprobs 3"), (3, 3, "logprobs has 2 entries")],
)
def test_arrays_that_disagree_are_refused(num_ids: int, num_top: int, wrong: str) -> None:
    message = pb.TokenLogprobs(logprobs=bytes(8), top_token_ids=bytes(4 * num_ids), top_logprobs=bytes(4 * num_top))
    with pytest.raises(InvalidRequest, match=wrong):
        logprobs_from_wire(message)


def test_a_commit_with_more_log_probabilities_than_tokens_is_refused() -> None:
    message = commit_to_wire(Commit(1, 5, (7, 8), logprobs=told(2, 1)))
    message.token_ids = message.token_ids[:4]
    with pytest.raises(InvalidRequest, match="logprobs has 2 entries for 1 token_ids"):
        commit_from_wire(message)
