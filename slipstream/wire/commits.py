"""Commits, and what comes with them, as messages and back. Knows shapes; judges no meaning."""

from __future__ import annotations

from slipstream.errors import InvalidRequest
from slipstream.exchange import Commit, CommitBatch, StepReport
from slipstream.request import FinishReason
from slipstream.wire.arrays import ids_from_wire, ids_to_wire
from slipstream.wire.logprobs import (
    logprobs_from_wire,
    logprobs_to_wire,
    prompt_logprobs_from_wire,
    prompt_logprobs_to_wire,
)
from slipstream.wire.v1 import exchange_pb2 as pb


def commit_to_wire(commit: Commit) -> pb.Commit:
    return pb.Commit(
        sequence_id=commit.sequence_id,
        base=commit.base,
        token_ids=ids_to_wire(commit.token_ids),
        num_accepted=commit.num_accepted,
        num_draft_tokens=commit.num_draft_tokens,
        proposer=commit.proposer,
        finish_reason=pb.FinishReason.ValueType(commit.finish_reason),
        stop_string=commit.stop_string,
        hit=commit.hit,
        wait_us=commit.wait_us,
        num_cached_tokens=commit.num_cached_tokens,
        logprobs=None if commit.logprobs is None else logprobs_to_wire(commit.logprobs),
    )


def commit_from_wire(message: pb.Commit) -> Commit:
    token_ids = ids_from_wire(message.token_ids, "token_ids")
    if message.num_accepted > len(token_ids):
        raise InvalidRequest(f"num_accepted is {message.num_accepted}; it must be <= {len(token_ids)}, the token_ids")
    logprobs = logprobs_from_wire(message.logprobs) if message.HasField("logprobs") else None
    if logprobs is not None and len(logprobs) != len(token_ids):
        raise InvalidRequest(f"logprobs has {len(logprobs)} entries for {len(token_ids)} token_ids; send one per token")
    return Commit(
        sequence_id=message.sequence_id,
        base=message.base,
        token_ids=token_ids,
        num_accepted=message.num_accepted,
        num_draft_tokens=message.num_draft_tokens,
        proposer=message.proposer,
        finish_reason=_finish_reason_from_wire(message.finish_reason),
        stop_string=message.stop_string,
        hit=message.hit,
        wait_us=message.wait_us,
        num_cached_tokens=message.num_cached_tokens,
        logprobs=logprobs,
    )


def commit_batch_to_wire(batch: CommitBatch) -> pb.CommitBatch:
    step = batch.step
    return pb.CommitBatch(
        commits=[commit_to_wire(commit) for commit in batch.commits],
        step=pb.StepReport(
            num_running=step.num_running,
            num_waiting=step.num_waiting,
            num_tokens=step.num_tokens,
            step_us=step.step_us,
            kv_blocks_used=step.kv_blocks_used,
            kv_blocks_total=step.kv_blocks_total,
        ),
        prompt_logprobs=[prompt_logprobs_to_wire(told) for told in batch.prompt_logprobs],
    )


def commit_batch_from_wire(message: pb.CommitBatch) -> CommitBatch:
    step = message.step
    return CommitBatch(
        commits=tuple(commit_from_wire(commit) for commit in message.commits),
        step=StepReport(
            num_running=step.num_running,
            num_waiting=step.num_waiting,
            num_tokens=step.num_tokens,
            step_us=step.step_us,
            kv_blocks_used=step.kv_blocks_used,
            kv_blocks_total=step.kv_blocks_total,
        ),
        prompt_logprobs=tuple(prompt_logprobs_from_wire(told) for told in message.prompt_logprobs),
    )


def _finish_reason_from_wire(value: int) -> FinishReason:
    try:
        return FinishReason(value)
    except ValueError:
        raise InvalidRequest(f"finish_reason is {value}; it must be in 0..{max(FinishReason)}") from None
