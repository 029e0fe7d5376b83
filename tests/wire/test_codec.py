"""The codec: what goes in comes out, and malformed arrays are refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import InvalidRequest, VocabularyMismatch
from slipstream.exchange import (
    LAW_TOTAL,
    Commit,
    CommitBatch,
    Draft,
    DraftBatch,
    DraftToken,
    LawKind,
    ModelInfo,
    SequenceFailure,
    SparseLaw,
    StepReport,
    Update,
)
from slipstream.request import FinishReason, Grammar, GrammarKind, SamplingParams, SequenceRequest, VerificationMode
from slipstream.wire import codec
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


def make_request(**changes: object) -> SequenceRequest:
    sampling = SamplingParams(
        temperature=0.5,
        top_k=40,
        top_p=0.75,
        min_p=0.25,
        max_tokens=9,
        stop_token_ids=(2, 5),
        stop_strings=("ä\n",),
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        logit_bias=((3, -100.0), (49151, 0.5)),
        allowed_token_ids=(3, 9, 49151),
        bad_words=((7,), (3, 9)),
        min_tokens=4,
        logprobs=True,
        num_top_logprobs=5,
        prompt_logprobs=True,
        grammar=Grammar(GrammarKind.REGEX, "[ab]+"),
    )
    values: dict[str, object] = {
        "sequence_id": 1 << 40,
        "token_ids": (1, 2, 49151),
        "num_prompt_tokens": 2,
        "sampling": sampling,
        "mode": VerificationMode.COUPLED,
        "seed": (1 << 64) - 1,
        "nonce": 1 << 63,
        "sample_index": 3,
        "num_draft_tokens": 5,
        "fan_out": 8,
        "max_wait_us": 900,
        "proposers": ("ngram", "draft_model"),
        "epoch": 2,
        "adapter": "law",
        "tenant": "acme",
        "vocabulary_hash": "ab12",
        "deadline_ms": 77,
        "request_id": "r-1",
        "features": "c" * 64,
    }
    return SequenceRequest(**(values | changes))  # type: ignore[arg-type]


def law_entries(draft: Draft) -> list[tuple[list[int], list[int]]]:
    laws = [token.law for token in draft.tokens if token.law is not None]
    return [(law.token_ids.tolist(), law.counts.tolist()) for law in laws]


def test_an_open_comes_back_as_it_was() -> None:
    request = make_request()
    message = pb.Open.FromString(codec.open_to_wire(request).SerializeToString())
    assert codec.open_from_wire(message) == request


def test_update_and_close_come_back_as_they_were() -> None:
    update = Update(sequence_id=4, num_draft_tokens=0, fan_out=2, max_wait_us=10)
    assert codec.update_from_wire(codec.update_to_wire(update)) == update
    assert codec.close_from_wire(codec.close_to_wire(4)) == 4


def test_a_draft_keeps_every_law_with_its_token() -> None:
    draft = make_draft()
    message = pb.Draft.FromString(codec.draft_to_wire(draft).SerializeToString())
    back = codec.draft_from_wire(message)
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
    assert law_entries(codec.draft_from_wire(codec.draft_to_wire(draft))) == law_entries(draft)


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
    message = pb.CommitBatch.FromString(codec.commit_batch_to_wire(batch).SerializeToString())
    assert codec.commit_batch_from_wire(message) == batch


def test_model_info_comes_back_as_it_was() -> None:
    info = ModelInfo(
        name="m",
        vocabulary_hash="ff",
        vocab_size=10,
        max_model_len=64,
        stop_token_ids=(2,),
        proposers=("eagle3",),
        features="c" * 64,
    )
    assert codec.model_info_from_wire(codec.model_info_to_wire(info)) == info


def test_a_failure_keeps_its_kind_and_words() -> None:
    failure = SequenceFailure(6, VocabularyMismatch("draft has 10 entries, target 12"))
    back = codec.failure_from_wire(codec.failure_to_wire(failure))
    assert back.sequence_id == 6
    assert isinstance(back.error, VocabularyMismatch)
    assert str(back.error) == "draft has 10 entries, target 12"


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
    message = codec.draft_to_wire(make_draft())
    setattr(message, field, value)
    with pytest.raises(InvalidRequest, match=said.replace("(", r"\(")):
        codec.draft_from_wire(message)


def test_a_malformed_draft_does_not_take_the_others_of_its_batch_along(caplog: pytest.LogCaptureFixture) -> None:
    message = codec.draft_batch_to_wire(DraftBatch((make_draft(), make_draft()), draft_us=5, held_us=6))
    message.drafts[0].law_kinds = b""
    batch = codec.draft_batch_from_wire(message)
    assert len(batch.drafts) == 1
    assert (batch.draft_us, batch.held_us) == (5, 6)
    assert "dropped a draft of 'draft_model' for sequence 3" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": 0}, "mode is 0; it must be 1"),
        ({"mode": 9}, "mode is 9"),
        ({"token_ids": b""}, "prompt is empty"),
        ({"num_prompt_tokens": 9}, "num_prompt_tokens is 9; it must be in 1..3"),
        ({"sampling": pb.Sampling(temperature=math.nan, top_p=1, max_tokens=1)}, "temperature is nan"),
        ({"sampling": pb.Sampling(top_p=0, max_tokens=1)}, "top_p is 0.0"),
    ],
)
def test_an_open_that_asks_for_nonsense_is_refused_by_name(change: dict[str, object], said: str) -> None:
    message = codec.open_to_wire(make_request())
    for field, value in change.items():
        if isinstance(value, pb.Sampling):
            message.sampling.CopyFrom(value)
        else:
            setattr(message, field, value)
    with pytest.raises(InvalidRequest, match=said):
        codec.open_from_wire(message)


def test_a_commit_cannot_accept_more_tokens_than_it_has() -> None:
    message = codec.commit_to_wire(Commit(1, 2, (3,)))
    message.num_accepted = 2
    with pytest.raises(InvalidRequest, match="num_accepted is 2; it must be <= 1"):
        codec.commit_from_wire(message)


def test_an_id_beyond_32_bits_cannot_be_sent() -> None:
    with pytest.raises(InvalidRequest, match="token id 4294967296 does not fit"):
        codec.ids_to_wire([1, 1 << 32])
