"""Drafts: every law stays with its token, and malformed arrays are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import InvalidRequest
from slipstream.exchange import LAW_TOTAL, Draft, DraftBatch, DraftToken, LawKind, SparseLaw
from slipstream.wire.drafts import draft_batch_from_wire, draft_batch_to_wire, draft_from_wire, draft_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb


def make_law(token_ids: list[int], counts: list[int]) -> SparseLaw:
    return SparseLaw(np.asarray(token_ids, np.int32), np.asarray(counts, np.uint16))


def make_draft() -> Draft:
    tokens = (
        DraftToken(7, LawKind.ASSUMED),
        DraftToken(9, LawKind.SPARSE, make_law([9, 3], [LAW_TOTAL - 1, 1])),
        DraftToken(4, LawKind.ONE_HOT),
        DraftToken(5, LawKind.SPARSE, make_law([5], [LAW_TOTAL])),
    )
    return Draft(sequence_id=3, base=11, proposer="draft_model", draw=1 << 32 | 5, tokens=tokens)


def law_entries(draft: Draft) -> list[tuple[list[int], list[int]]]:
    laws = [token.law for token in draft.tokens if token.law is not None]
    return [(law.token_ids.tolist(), law.counts.tolist()) for law in laws]


def test_a_draft_keeps_every_law_with_its_token() -> None:
    draft = make_draft()
    message = pb.Draft.FromString(draft_to_wire(draft).SerializeToString())
    back = draft_from_wire(message)
    assert (back.sequence_id, back.base, back.proposer, back.draw) == (3, 11, "draft_model", 1 << 32 | 5)
    assert [(t.token_id, t.kind) for t in back.tokens] == [(t.token_id, t.kind) for t in draft.tokens]
    assert law_entries(back) == law_entries(draft)
    assert back.tokens[1].law is not None
    assert back.tokens[1].law.probability(3) == 1 / LAW_TOTAL


@given(st.lists(st.lists(st.integers(0, 49151), min_size=1, max_size=64, unique=True), max_size=8))
def test_any_path_of_sparse_laws_survives_the_wire(supports: list[list[int]]) -> None:
    tokens = [
        DraftToken(ids[-1], LawKind.SPARSE, make_law(ids, [LAW_TOTAL - len(ids) + 1] + [1] * (len(ids) - 1)))
        for ids in supports
    ]
    draft = Draft(1, 0, "draft_model", 0, tuple(tokens))
    assert law_entries(draft_from_wire(draft_to_wire(draft))) == law_entries(draft)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("token_ids", b"\0\0\0", "token_ids is 3 bytes long; it must be a multiple of 4"),
        ("token_ids", b"", "law_kinds has 4 entries for 0 token_ids"),
        ("law_kinds", b"\x00\x02\x01\x03", "law_kinds holds 3; it must be in 0..2"),
        ("law_kinds", b"\x00\x02\x01\x01", "law_sizes has 2 entries for 1 sparse tokens"),
        ("law_sizes", np.asarray([2, 2], "<u2").tobytes(), "law_sizes says 4"),
    ],
)
def test_a_malformed_draft_is_refused_by_field(field: str, value: bytes, said: str) -> None:
    message = draft_to_wire(make_draft())
    setattr(message, field, value)
    with pytest.raises(InvalidRequest, match=said.replace("(", r"\(")):
        draft_from_wire(message)


def test_a_malformed_draft_does_not_take_the_others_of_its_batch_along(caplog: pytest.LogCaptureFixture) -> None:
    message = draft_batch_to_wire(DraftBatch((make_draft(), make_draft()), draft_us=5, held_us=6))
    message.drafts[0].law_kinds = b""
    batch = draft_batch_from_wire(message)
    assert len(batch.drafts) == 1
    assert (batch.draft_us, batch.held_us) == (5, 6)
    assert "dropped a draft of 'draft_model' for sequence 3" in caplog.text
