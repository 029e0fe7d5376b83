"""Remote drafts of one sequence: which drafter, when again, when never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from gateway.ledger import Ledger
from gateway.metrics import GatewayMetrics
from gateway.peers.complaints import Complaints
from gateway.peers.dialects import DrafterDialect, VerifierItem
from gateway.peers.pool import Pool
from gateway.proposers import DrafterPool, Surroundings
from gateway.proposers.remote import RemoteDrafts
from slipstream.errors import Exhausted, UnknownModel, VocabularyMismatch
from slipstream.exchange import Commit, FeaturesWanted
from slipstream.request import FinishReason, SamplingParams, SequenceRequest
from slipstream.wire.v1 import exchange_pb2
from tests.gateway.fakes import TOKENIZER, FakeDrafter, eventually


class Sequence:
    """A sequence with a remote proposer; `sent` is what the verifier got."""

    def __init__(self, pool: DrafterPool, proposer: str = "draft_model", features: str = "", adapter: str = "") -> None:
        self.request = SequenceRequest(
            sequence_id=1,
            token_ids=(1, 2),
            num_prompt_tokens=2,
            sampling=SamplingParams(),
            vocabulary_hash=TOKENIZER.vocabulary_hash,
            features=features,
            adapter=adapter,
            hand_over=7,
        )
        self.sent: list[VerifierItem] = []
        self.ledger = Ledger(GatewayMetrics(), "acme", received=0, prompt_tokens=2, num_draft_tokens=2, seed=0)
        around = Surroundings(
            current=lambda: self.request,
            vocab_size=lambda: 257,
            send=self.sent.append,
            drafters=pool,
            record=self.ledger,
            complaints=Complaints(),
            process=lambda: "here",
        )
        self.drafts = RemoteDrafts(proposer, around)


@asynccontextmanager
async def sequence_with(*drafters: FakeDrafter, **asks: str) -> AsyncIterator[Sequence]:
    for drafter in drafters:
        await drafter.start()
    pool: DrafterPool = Pool([drafter.address for drafter in drafters], lambda address: DrafterDialect())
    task = asyncio.create_task(pool.run())
    await eventually(lambda: len(pool.available) == len(drafters))
    try:
        yield Sequence(pool, **asks)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        for drafter in drafters:
            await drafter.die()


@pytest.fixture
def drafter() -> FakeDrafter:
    return FakeDrafter([])


async def come_back(drafter: FakeDrafter) -> None:
    await drafter.die()
    await drafter.start()


async def test_a_drafter_that_was_full_is_asked_again_when_it_comes_back(drafter: FakeDrafter) -> None:
    async with sequence_with(drafter) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        drafter.fail(1, Exhausted("full"))
        await asyncio.sleep(0.1)
        await come_back(drafter)
        await eventually(lambda: len(drafter.opens) == 2)


async def test_when_a_drafter_is_full_another_is_asked(drafter: FakeDrafter) -> None:
    other = FakeDrafter([], "other")
    async with sequence_with(drafter, other) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens or other.opens)
        first, second = (drafter, other) if drafter.opens else (other, drafter)
        first.fail(1, Exhausted("full"))
        await eventually(lambda: second.opens)
        second.fail(1, Exhausted("full"))
        await asyncio.sleep(0.1)
    assert (len(drafter.opens), len(other.opens)) == (1, 1)


async def test_where_an_adapter_is_not_loaded_another_drafter_is_asked_for_it(drafter: FakeDrafter) -> None:
    other = FakeDrafter([], "other")
    async with sequence_with(drafter, other, adapter="legal") as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens or other.opens)
        first, second = (drafter, other) if drafter.opens else (other, drafter)
        first.fail(1, UnknownModel("adapter 'legal' is not loaded here"))
        await eventually(lambda: second.opens)
    assert [opened.adapter for opened in (*drafter.opens, *other.opens)] == ["legal", "legal"]


async def test_only_a_draft_model_is_asked_for_an_adapter() -> None:
    drafter = FakeDrafter([])
    drafter.info = replace(drafter.info, proposers=("pard",))
    async with sequence_with(drafter, proposer="pard", adapter="legal") as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
    assert drafter.opens[0].adapter == ""


async def test_a_drafter_that_refused_the_vocabulary_is_not_asked_again(drafter: FakeDrafter) -> None:
    async with sequence_with(drafter) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        drafter.fail(1, VocabularyMismatch("other words"))
        await asyncio.sleep(0.1)
        await come_back(drafter)
        await asyncio.sleep(0.6)
        sequence.drafts.observe(Commit(1, 2, (3,)))
    assert len(drafter.opens) == 1
    assert drafter.commits == []


@pytest.mark.parametrize("change", [{"vocabulary_hash": "ff"}, {"proposers": ("eagle3",)}])
async def test_a_drafter_that_cannot_fit_is_not_asked_at_all(
    drafter: FakeDrafter, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    drafter.info = replace(drafter.info, **change)  # type: ignore[arg-type]
    async with sequence_with(drafter) as sequence:
        for _ in range(2):
            sequence.drafts.start((1, 2))
        await asyncio.sleep(0.1)
    assert drafter.opens == []
    assert caplog.text.count("has another vocabulary") == ("vocabulary_hash" in change)


async def test_the_wire_is_timed_from_a_commit_to_its_first_answer_only(drafter: FakeDrafter) -> None:
    async with sequence_with(drafter) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        sequence.drafts.observe(Commit(1, 2, (3,)))
        await eventually(lambda: drafter.commits)
        drafter.draft(1, 3, [4])
        await eventually(lambda: len(sequence.sent) == 1)
        first = sequence.ledger.timings(0).wire_us
        drafter.draft(1, 3, [5], draw=1)
        await eventually(lambda: len(sequence.sent) == 2)
    assert 0 < first == sequence.ledger.timings(0).wire_us
    assert sequence.ledger.timings(0).draft_us == 1400


async def test_after_close_nothing_is_drafted_and_no_arrival_matters(drafter: FakeDrafter) -> None:
    async with sequence_with(drafter) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        sequence.drafts.close()
        await eventually(lambda: drafter.closes == [1])
        await come_back(drafter)
        await asyncio.sleep(0.6)
    assert len(drafter.opens) == 1


async def test_what_was_kept_is_told_in_order_with_the_commit_that_follows(drafter: FakeDrafter) -> None:
    async with sequence_with(drafter) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        sequence.drafts.keep(Commit(1, 2, (3,)))
        await asyncio.sleep(0.1)
        assert not drafter.commits
        sequence.drafts.observe(Commit(1, 3, (4, 5)))
        await eventually(lambda: len(drafter.commits) == 2)
        assert [commit.base for commit in drafter.commits] == [2, 3]
        assert not sequence.drafts.may_rest, "this one has a device of its own"


async def test_features_go_to_a_drafter_that_builds_on_them_and_are_asked_for_whenever_it_begins() -> None:
    drafter = FakeDrafter([])
    drafter.info = replace(drafter.info, proposers=("eagle3",), features="f")
    features = exchange_pb2.Features(sequence_id=1, start=0, data=b"1234")
    async with sequence_with(drafter, proposer="eagle3", features="f") as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        sequence.drafts.forward_features(features)
        await eventually(lambda: drafter.features == [features])
        assert sequence.sent == [FeaturesWanted(1, 0)]
        assert drafter.opens[0].features == "f"
        await come_back(drafter)
        await eventually(lambda: len(drafter.opens) == 2)
        assert sequence.sent == [FeaturesWanted(1, 0)] * 2


async def test_a_draft_model_gets_no_features(drafter: FakeDrafter) -> None:
    async with sequence_with(drafter, features="f") as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: drafter.opens)
        sequence.drafts.forward_features(exchange_pb2.Features(sequence_id=1))
        sequence.drafts.observe(Commit(1, 2, (3,)))
        await eventually(lambda: drafter.commits)
    assert not drafter.features
    assert not sequence.sent


async def test_a_drafter_made_for_other_features_is_not_asked_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drafter = FakeDrafter([])
    drafter.info = replace(drafter.info, proposers=("eagle3",), features="f")
    async with sequence_with(drafter, proposer="eagle3") as sequence:
        sequence.drafts.start((1, 2))
        await asyncio.sleep(0.1)
    assert not drafter.opens
    assert "builds on features f, and the verifier sends none; start it with `--features`" in caplog.text


async def test_a_drafter_in_the_verifiers_process_is_preferred_and_tells_times_alone(drafter: FakeDrafter) -> None:
    beside = FakeDrafter([], "beside")
    beside.info = replace(beside.info, process="here")
    async with sequence_with(drafter, beside) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: beside.opens)
        assert beside.opens[0].hand_over == 7
        sequence.drafts.observe(Commit(1, 2, (3,)))
        beside.draft(1, 3, [])
        await eventually(lambda: sequence.ledger.timings(0).draft_us > 0)
        sequence.drafts.finish(Commit(1, 3, (4,), finish_reason=FinishReason.LENGTH))  # for who counts sequences there
        await eventually(lambda: beside.commits)
    assert not sequence.sent
    assert [commit.base for commit in beside.commits] == [3]
    assert not drafter.opens


async def test_when_it_is_full_another_drafter_drafts_by_the_gateway(drafter: FakeDrafter) -> None:
    beside = FakeDrafter([], "beside")
    beside.info = replace(beside.info, process="here")
    async with sequence_with(drafter, beside) as sequence:
        sequence.drafts.start((1, 2))
        await eventually(lambda: beside.opens)
        beside.fail(1, Exhausted("full"))
        await eventually(lambda: drafter.opens)
        assert drafter.opens[0].hand_over == 0
        sequence.drafts.observe(Commit(1, 2, (3,)))
        await eventually(lambda: drafter.commits)
