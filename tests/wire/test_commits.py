"""Commits and step reports: what goes in comes out, and what contradicts itself is refused."""

from __future__ import annotations

import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import Commit, CommitBatch, StepReport
from slipstream.request import FinishReason
from slipstream.wire.commits import commit_batch_from_wire, commit_batch_to_wire, commit_from_wire, commit_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb


def test_commits_and_step_report_come_back_as_they_were() -> None:
    commit = Commit(
        sequence_id=2,
        base=5,
        token_ids=(8, 9),
        num_accepted=1,
        num_draft_tokens=4,
        proposer="ngram",
        finish_reason=FinishReason.STOP,
        stop_string="end",
        hit=True,
        wait_us=12,
        num_cached_tokens=16,
    )
    batch = CommitBatch((commit,), StepReport(1, 2, 3, 4, 5, 6))
    message = pb.CommitBatch.FromString(commit_batch_to_wire(batch).SerializeToString())
    assert commit_batch_from_wire(message) == batch


def test_a_commit_cannot_accept_more_tokens_than_it_has() -> None:
    message = commit_to_wire(Commit(1, 2, (3,)))
    message.num_accepted = 2
    with pytest.raises(InvalidRequest, match="num_accepted is 2; it must be <= 1"):
        commit_from_wire(message)
