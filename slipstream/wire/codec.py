"""Between the dataclasses of exchange.py, request.py and their protobuf messages. Knows shapes; judges no meaning."""

from __future__ import annotations

import logging

import numpy as np

from slipstream.errors import InvalidRequest
from slipstream.exchange import (
    Commit,
    CommitBatch,
    Draft,
    DraftBatch,
    DraftToken,
    LawKind,
    ModelInfo,
    SequenceFailure,
    StepReport,
    Update,
)
from slipstream.request import FinishReason, SequenceRequest, VerificationMode
from slipstream.wire import arrays, status
from slipstream.wire.arrays import ids_from_wire, ids_to_wire
from slipstream.wire.logprobs import (
    logprobs_from_wire,
    logprobs_to_wire,
    prompt_logprobs_from_wire,
    prompt_logprobs_to_wire,
)
from slipstream.wire.sampling import sampling_from_wire, sampling_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb

_LOG = logging.getLogger(__name__)

_KINDS = tuple(LawKind)


def open_to_wire(request: SequenceRequest) -> pb.Open:
    return pb.Open(
        sequence_id=request.sequence_id,
        token_ids=ids_to_wire(request.token_ids),
        num_prompt_tokens=request.num_prompt_tokens,
        seed=request.seed,
        nonce=request.nonce,
        sample_index=request.sample_index,
        sampling=sampling_to_wire(request.sampling),
        mode=pb.VerificationMode.ValueType(request.mode),
        num_draft_tokens=request.num_draft_tokens,
        fan_out=request.fan_out,
        max_wait_us=request.max_wait_us,
        proposers=request.proposers,
        epoch=request.epoch,
        adapter=request.adapter,
        tenant=request.tenant,
        vocabulary_hash=request.vocabulary_hash,
        deadline_ms=request.deadline_ms,
        request_id=request.request_id,
        features=request.features,
        traceparent=request.traceparent,
    )


def open_from_wire(message: pb.Open) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=message.sequence_id,
        token_ids=ids_from_wire(message.token_ids, "token_ids"),
        num_prompt_tokens=message.num_prompt_tokens,
        seed=message.seed,
        nonce=message.nonce,
        sample_index=message.sample_index,
        sampling=sampling_from_wire(message.sampling),
        mode=_mode_from_wire(message.mode),
        num_draft_tokens=message.num_draft_tokens,
        fan_out=message.fan_out,
        max_wait_us=message.max_wait_us,
        proposers=tuple(message.proposers),
        epoch=message.epoch,
        adapter=message.adapter,
        tenant=message.tenant,
        vocabulary_hash=message.vocabulary_hash,
        deadline_ms=message.deadline_ms,
        request_id=message.request_id,
        features=message.features,
        traceparent=message.traceparent,
    )


def update_to_wire(update: Update) -> pb.Update:
    return pb.Update(
        sequence_id=update.sequence_id,
        num_draft_tokens=update.num_draft_tokens,
        fan_out=update.fan_out,
        max_wait_us=update.max_wait_us,
    )


def update_from_wire(message: pb.Update) -> Update:
    return Update(message.sequence_id, message.num_draft_tokens, message.fan_out, message.max_wait_us)


def close_to_wire(sequence_id: int) -> pb.Close:
    return pb.Close(sequence_id=sequence_id)


def close_from_wire(message: pb.Close) -> int:
    return message.sequence_id


def draft_to_wire(draft: Draft) -> pb.Draft:
    laws = [token.law for token in draft.tokens if token.law is not None]
    return pb.Draft(
        sequence_id=draft.sequence_id,
        base=draft.base,
        proposer=draft.proposer,
        draw=draft.draw,
        token_ids=ids_to_wire([token.token_id for token in draft.tokens]),
        law_kinds=bytes(token.kind for token in draft.tokens),
        law_sizes=np.asarray([law.token_ids.size for law in laws], dtype=arrays.COUNT).tobytes(),
        law_token_ids=arrays.join((law.token_ids for law in laws), arrays.ID),
        law_counts=arrays.join((law.counts for law in laws), arrays.COUNT),
    )


def draft_from_wire(message: pb.Draft) -> Draft:
    """Raises InvalidRequest if arrays disagree."""
    token_ids = arrays.read(message.token_ids, arrays.ID, "token_ids")
    kinds = arrays.read(message.law_kinds, arrays.KIND, "law_kinds")
    if kinds.size != token_ids.size:
        raise InvalidRequest(f"law_kinds has {kinds.size} entries for {token_ids.size} token_ids; send one per token")
    if kinds.size and int(kinds.max()) >= len(_KINDS):
        raise InvalidRequest(f"law_kinds holds {int(kinds.max())}; it must be in 0..{len(_KINDS) - 1}")
    laws = arrays.split_laws(
        arrays.read(message.law_sizes, arrays.COUNT, "law_sizes"),
        arrays.read(message.law_token_ids, arrays.ID, "law_token_ids"),
        arrays.read(message.law_counts, arrays.COUNT, "law_counts"),
    )
    num_sparse = int((kinds == LawKind.SPARSE).sum())
    if len(laws) != num_sparse:
        raise InvalidRequest(f"law_sizes has {len(laws)} entries for {num_sparse} sparse tokens; send one per token")
    following = iter(laws)
    tokens = tuple(
        DraftToken(token_id, _KINDS[kind], next(following) if kind == LawKind.SPARSE else None)
        for token_id, kind in zip(token_ids.tolist(), kinds.tolist(), strict=True)
    )
    return Draft(message.sequence_id, message.base, message.proposer, message.draw, tokens)


def draft_batch_to_wire(batch: DraftBatch) -> pb.DraftBatch:
    drafts = [draft_to_wire(draft) for draft in batch.drafts]
    return pb.DraftBatch(drafts=drafts, draft_us=batch.draft_us, held_us=batch.held_us)


def draft_batch_from_wire(message: pb.DraftBatch) -> DraftBatch:
    """A malformed draft is dropped and logged: a lost draft costs speed, a refused batch would cost other sequences."""
    drafts = []
    for draft in message.drafts:
        try:
            drafts.append(draft_from_wire(draft))
        except InvalidRequest as error:
            _LOG.warning("dropped a draft of %r for sequence %d: %s", draft.proposer, draft.sequence_id, error)
    return DraftBatch(tuple(drafts), message.draft_us, message.held_us)


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


def failure_to_wire(failure: SequenceFailure) -> pb.SequenceError:
    code, text = status.to_status(failure.error)
    return pb.SequenceError(sequence_id=failure.sequence_id, code=status.number(code), message=text)


def failure_from_wire(message: pb.SequenceError) -> SequenceFailure:
    return SequenceFailure(message.sequence_id, status.from_status(message.code, message.message))


def model_info_to_wire(info: ModelInfo) -> pb.ModelInfo:
    return pb.ModelInfo(
        name=info.name,
        vocabulary_hash=info.vocabulary_hash,
        vocab_size=info.vocab_size,
        max_model_len=info.max_model_len,
        stop_token_ids=ids_to_wire(info.stop_token_ids),
        dtype=info.dtype,
        device=info.device,
        version=info.version,
        kv_blocks_total=info.kv_blocks_total,
        kv_block_size=info.kv_block_size,
        kv_blocks_used=info.kv_blocks_used,
        num_sequences=info.num_sequences,
        proposers=info.proposers,
        features=info.features,
    )


def model_info_from_wire(message: pb.ModelInfo) -> ModelInfo:
    return ModelInfo(
        name=message.name,
        vocabulary_hash=message.vocabulary_hash,
        vocab_size=message.vocab_size,
        max_model_len=message.max_model_len,
        stop_token_ids=ids_from_wire(message.stop_token_ids, "stop_token_ids"),
        dtype=message.dtype,
        device=message.device,
        version=message.version,
        kv_blocks_total=message.kv_blocks_total,
        kv_block_size=message.kv_block_size,
        kv_blocks_used=message.kv_blocks_used,
        num_sequences=message.num_sequences,
        proposers=tuple(message.proposers),
        features=message.features,
    )


def _mode_from_wire(value: int) -> VerificationMode:
    try:
        return VerificationMode(value)
    except ValueError:
        raise InvalidRequest(f"mode is {value}; it must be 1 (ratio) or 2 (coupled)") from None


def _finish_reason_from_wire(value: int) -> FinishReason:
    try:
        return FinishReason(value)
    except ValueError:
        raise InvalidRequest(f"finish_reason is {value}; it must be in 0..{max(FinishReason)}") from None
