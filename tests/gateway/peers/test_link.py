"""One peer's link: connection, health, batching, loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2

from gateway.peers import link as link_module
from gateway.peers.dialects import DrafterDialect
from gateway.proposers.surroundings import DrafterLink
from slipstream.errors import Unavailable
from slipstream.exchange import Commit, ModelInfo
from slipstream.request import SamplingParams, SequenceRequest
from slipstream.wire.v1 import exchange_pb2
from tests.gateway.fakes import FakeDrafter, eventually


class Receiver:
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_drafts(self, drafts: list[exchange_pb2.Draft], draft_us: int, held_us: int) -> None:
        self.told.append(f"{len(drafts)} drafts")

    def on_failure(self, error: Exception) -> None:
        self.told.append(f"failure: {error}")

    def on_down(self) -> None:
        self.told.append("down")


def request(sequence_id: int) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=sequence_id, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(), proposers=("x",)
    )


@asynccontextmanager
async def connected(drafter: FakeDrafter) -> AsyncIterator[DrafterLink]:
    await drafter.start()
    link: DrafterLink = DrafterLink(drafter.address, DrafterDialect(), lambda link: None)
    task = asyncio.create_task(link.run())
    try:
        await eventually(lambda: link.available)
        yield link
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await drafter.die()


@pytest.fixture
def drafter() -> FakeDrafter:
    return FakeDrafter([])


async def test_what_is_sent_in_one_tick_leaves_in_one_message_per_kind(drafter: FakeDrafter) -> None:
    async with connected(drafter) as link:
        for number in (1, 2, 3):
            link.open(request(number), Receiver())
            link.send(number, Commit(number, 1, (5,)))
        await eventually(lambda: len(drafter.commits) == 3)
    sent = [message.WhichOneof("message") for _, message in drafter.journal]
    assert sent == ["open", "open", "open", "commits"]


async def test_what_was_not_sent_before_a_close_is_not_sent_at_all(drafter: FakeDrafter) -> None:
    async with connected(drafter) as link:
        link.open(request(1), Receiver())
        link.send(1, Commit(1, 1, (5,)))
        link.close(1)
        link.close(1)
        link.send(1, Commit(1, 2, (6,)))
        await eventually(lambda: drafter.closes == [1])
    assert drafter.opens == []
    assert drafter.commits == []


async def test_a_sequence_that_is_opened_again_in_the_same_tick_stays_open(drafter: FakeDrafter) -> None:
    async with connected(drafter) as link:
        link.open(request(1), Receiver())
        await eventually(lambda: drafter.opens)
        link.close(1)
        link.open(request(1), Receiver())
        await eventually(lambda: len(drafter.opens) == 2)
        assert link.num_sequences == 1
    sent = [message.WhichOneof("message") for _, message in drafter.journal]
    assert sent == ["open", "close", "open"]


async def test_what_arrives_goes_to_its_sequence_only(drafter: FakeDrafter) -> None:
    first, second = Receiver(), Receiver()
    async with connected(drafter) as link:
        link.open(request(1), first)
        link.open(request(2), second)
        await eventually(lambda: len(drafter.opens) == 2)
        drafter.draft(1, 1, [7])
        drafter.draft(99, 1, [7])
        drafter.fail(2, ValueError("no"))
        await eventually(lambda: second.told)
        assert first.told == ["1 drafts"]
        assert second.told[0].startswith("failure")


async def test_a_lost_peer_is_told_to_every_sequence_once_and_found_again(drafter: FakeDrafter) -> None:
    receivers = [Receiver(), Receiver()]
    async with connected(drafter) as link:
        for number, receiver in enumerate(receivers):
            link.open(request(number), receiver)
        await eventually(lambda: len(drafter.opens) == 2)
        await drafter.die()
        await eventually(lambda: not link.available)
        assert [receiver.told for receiver in receivers] == [["down"], ["down"]]
        assert link.num_sequences == 0
        await drafter.start()
        await eventually(lambda: link.available, seconds=2.0)


async def test_an_unhealthy_peer_gets_no_new_sequences_but_keeps_those_it_has(drafter: FakeDrafter) -> None:
    receiver = Receiver()
    async with connected(drafter) as link:
        link.open(request(1), receiver)
        await drafter.set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await eventually(lambda: not link.available)
        drafter.draft(1, 1, [7])
        await eventually(lambda: receiver.told == ["1 drafts"])
        await drafter.set_health(health_pb2.HealthCheckResponse.SERVING)
        await eventually(lambda: link.available)


async def test_a_peer_that_does_not_read_is_treated_as_gone(
    drafter: FakeDrafter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link_module, "MAX_UNSENT", 10)
    monkeypatch.setattr(FakeDrafter, "_read", never_reads)
    receiver = Receiver()
    async with connected(drafter) as link:
        link.open(request(1), receiver)
        for _ in range(100):
            link.send(1, Commit(1, 1, tuple(range(20_000))))
            await asyncio.sleep(0.001)
            if receiver.told:
                break
    assert receiver.told[0] == "down"
    assert "does not read: 11 items wait" in caplog.text


async def never_reads(drafter: FakeDrafter, requests: AsyncIterator[object]) -> None:
    await asyncio.Event().wait()


class LostWhileStopping(DrafterDialect):
    """A peer whose connection breaks at the very moment the link is cancelled."""

    async def describe(self, channel: grpc.aio.Channel) -> ModelInfo:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("the stream broke") from None
        raise AssertionError("cancelled before")


async def test_a_link_that_is_cancelled_while_its_peer_goes_ends_all_the_same(drafter: FakeDrafter) -> None:
    await drafter.start()
    link: DrafterLink = DrafterLink(drafter.address, LostWhileStopping(), lambda link: None)
    task = asyncio.create_task(link.run())
    await asyncio.sleep(0.2)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=2)
    await drafter.die()
    assert done
    assert task.cancelled()


async def test_an_unreachable_peer_is_reported_once_not_at_every_attempt(caplog: pytest.LogCaptureFixture) -> None:
    link: DrafterLink = DrafterLink("127.0.0.1:1", DrafterDialect(), lambda link: None)
    task = asyncio.create_task(link.run())
    await asyncio.sleep(0.8)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert caplog.text.count("drafter 127.0.0.1:1 is not reachable") == 1


async def test_a_fault_of_ours_with_one_peer_is_told_and_tried_again(
    drafter: FakeDrafter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = ["one", "two"]
    describe = DrafterDialect.describe

    async def faulty(dialect: DrafterDialect, channel: grpc.aio.Channel) -> ModelInfo:
        if faults:
            raise KeyError(faults.pop())
        return await describe(dialect, channel)

    monkeypatch.setattr(DrafterDialect, "describe", faulty)
    async with connected(drafter) as link:
        assert link.available
    assert "is not reachable: 'two'" in caplog.text
