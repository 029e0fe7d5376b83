"""Drafted paths and their laws as messages and back. Knows shapes of arrays; judges no law."""

from __future__ import annotations

import logging

import numpy as np

from slipstream.errors import InvalidRequest
from slipstream.exchange import Draft, DraftBatch, DraftToken, LawKind
from slipstream.wire import arrays
from slipstream.wire.arrays import ids_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb

_LOG = logging.getLogger(__name__)

_KINDS = tuple(LawKind)


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
