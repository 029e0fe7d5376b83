"""Drafts that a tritonserver makes: always enough ahead, one call at a time, nothing lost with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import grpc
import pytest

from gateway.peers.tritonserver import TritonServer
from gateway.proposers.tritonserver import TritonServerDrafts
from slipstream.exchange import Commit, Draft, LawKind
from slipstream.wire.drafts import draft_from_wire
from slipstream.wire.v1 import exchange_pb2
from tests.gateway.fake_tritonserver import FakeTritonServer, Script
from tests.gateway.fakes import eventually

TEXT = tuple(range(1, 60))
K = 2


class Sequence7:
    """Drafts with K = 2; `sent` is what the verifier got."""

    def __init__(self, server: TritonServer, vocab_size: int = 100) -> None:
        self.sent: list[Draft] = []
        self.times: list[tuple[int, int]] = []
        self.committed: list[int] = []
        self.drafts = TritonServerDrafts(7, K, server, lambda: vocab_size, self._receive, self)

    def start(self, token_ids: Sequence[int]) -> None:
        self.committed = list(token_ids)
        self.drafts.start(self.committed)

    def commit(self, *token_ids: int) -> None:
        self.drafts.observe(Commit(7, len(self.committed), token_ids))
        self.committed += token_ids

    async def path(self, count: int) -> tuple[int, list[int]]:
        """Base and tokens of the newest draft, once there were so many."""
        await eventually(lambda: len(self.sent) >= count)
        assert len(self.sent) == count
        return self.sent[-1].base, [token.token_id for token in self.sent[-1].tokens]

    def record_draft_batch(self, proposer: str, *, draft_us: int, wire_us: int) -> None:
        assert proposer == "tritonserver"
        self.times.append((draft_us, wire_us))

    def _receive(self, draft: exchange_pb2.Draft) -> None:
        self.sent.append(draft_from_wire(draft))


@pytest.fixture
async def fake() -> AsyncIterator[FakeTritonServer]:
    server = FakeTritonServer(Script(TEXT))
    await server.start()
    yield server
    await server.die()


@pytest.fixture
async def server(fake: FakeTritonServer) -> AsyncIterator[TritonServer]:
    client = TritonServer(fake.config)
    running = asyncio.create_task(client.run())
    await eventually(lambda: client.available, 10)
    yield client
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_it_drafts_for_two_passes_at_once_and_then_what_is_missing(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    sequence = Sequence7(server)
    sequence.start(TEXT[:3])
    assert await sequence.path(1) == (3, [4, 5, 6, 7, 8])
    sequence.commit(4, 5, 6)
    assert await sequence.path(2) == (6, [7, 8, 9, 10, 11])
    assert fake.calls == [((1, 2, 3), 5), (TEXT[:8], 3)]
    assert {token.kind for token in sequence.sent[-1].tokens} == {LawKind.ONE_HOT}
    assert [draft.draw for draft in sequence.sent] == [0, 1]
    assert all(draft_us >= 0 < wire_us for draft_us, wire_us in sequence.times)


async def test_tokens_that_become_final_meanwhile_wait_for_the_one_call_and_are_asked_for_next(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    sequence = Sequence7(server)
    fake.may_answer.clear()
    sequence.start(TEXT[:3])
    await eventually(lambda: fake.calls)
    for token_id in (4, 5):
        sequence.commit(token_id)
    fake.may_answer.set()
    assert await sequence.path(2) == (5, [6, 7, 8, 9, 10])
    assert sequence.sent[0].base == 5  # late, and right as far as it goes
    assert [prefix for prefix, _ in fake.calls] == [TEXT[:3], TEXT[:8]]
    assert fake.most_at_once == 1


async def test_an_answer_that_came_wrong_meanwhile_is_dropped_and_the_newest_prefix_asked_for(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    sequence = Sequence7(server)
    fake.may_answer.clear()
    sequence.start(TEXT[:3])
    await eventually(lambda: fake.calls)
    sequence.commit(50)
    fake.say = _count
    fake.may_answer.set()
    assert await sequence.path(1) == (4, [51, 52, 53, 54, 55])


def _count(prefix: tuple[int, ...], num_tokens: int) -> Sequence[int]:
    return range(prefix[-1] + 1, prefix[-1] + 1 + num_tokens)


async def test_ids_that_the_target_does_not_have_end_a_draft(fake: FakeTritonServer, server: TritonServer) -> None:
    sequence = Sequence7(server, vocab_size=6)
    sequence.start(TEXT[:3])
    assert await sequence.path(1) == (3, [4, 5])
    await asyncio.sleep(0.05)
    assert len(fake.calls) == 2  # nothing can follow: it is not asked again and again
    fake.say = lambda prefix, num_tokens: [-1] * num_tokens
    sequence.commit(4)
    await eventually(lambda: len(fake.calls) == 3)
    assert len(sequence.sent) == 1


async def test_an_empty_answer_is_not_asked_for_again_before_the_next_commit(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    fake.say = lambda prefix, num_tokens: ()
    sequence = Sequence7(server)
    sequence.start(TEXT[:3])
    await eventually(lambda: sequence.times)
    await asyncio.sleep(0.05)
    assert len(fake.calls) == 1
    sequence.commit(4)
    await eventually(lambda: len(fake.calls) == 2)


async def test_a_server_that_dies_costs_nothing_and_drafts_again_when_it_is_back(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    sequence = Sequence7(server)
    fake.may_answer.clear()
    sequence.start(TEXT[:3])
    await eventually(lambda: fake.calls)
    await fake.die()
    await eventually(lambda: not server.available)
    sequence.commit(4, 5)
    fake.may_answer.set()
    await fake.start()
    await eventually(lambda: server.available, 10)
    sequence.commit(6)
    assert await sequence.path(1) == (6, [7, 8, 9, 10, 11])


async def test_a_sequence_that_was_refused_is_not_asked_for_again(fake: FakeTritonServer, server: TritonServer) -> None:
    fake.error = grpc.StatusCode.INVALID_ARGUMENT
    sequence = Sequence7(server)
    sequence.start(TEXT[:3])
    await eventually(lambda: fake.calls)
    await asyncio.sleep(0.05)
    sequence.commit(4)
    await asyncio.sleep(0.05)
    assert len(fake.calls) == 1
    assert server.available


async def test_no_more_calls_than_allowed_run_at_one_time_and_none_is_forgotten(fake: FakeTritonServer) -> None:
    client = TritonServer(fake.config)
    client.turn = asyncio.Semaphore(2)
    running = asyncio.create_task(client.run())
    await eventually(lambda: client.available, 10)
    fake.may_answer.clear()
    sequences = [Sequence7(client) for _ in range(6)]
    for sequence in sequences:
        sequence.start(TEXT[:3])
    await eventually(lambda: fake.num_at_once == 2)
    await asyncio.sleep(0.05)
    fake.may_answer.set()
    await eventually(lambda: all(sequence.sent for sequence in sequences))
    assert fake.most_at_once == 2
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_on_another_verifier_it_sends_again_what_that_one_cannot_have(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    sequence = Sequence7(server)
    sequence.start(TEXT[:3])
    await sequence.path(1)
    sequence.start(TEXT[:3])
    assert await sequence.path(2) == (3, [4, 5, 6, 7, 8])
    assert sequence.sent[0].draw != sequence.sent[1].draw


async def test_while_silent_it_reads_on_and_begins_at_once_when_asked(
    fake: FakeTritonServer, server: TritonServer
) -> None:
    sequence = Sequence7(server)
    sequence.drafts.redraft(0, is_alone=True)
    sequence.start(TEXT[:3])
    sequence.commit(4)
    await asyncio.sleep(0.05)
    assert fake.calls == []
    sequence.drafts.redraft(1, is_alone=True)
    assert await sequence.path(1) == (4, [5, 6, 7])
    assert sequence.drafts.has_drafts


async def test_after_the_end_an_answer_goes_nowhere(fake: FakeTritonServer, server: TritonServer) -> None:
    sequence = Sequence7(server)
    fake.may_answer.clear()
    sequence.start(TEXT[:3])
    await eventually(lambda: fake.num_at_once)
    sequence.drafts.close()
    fake.may_answer.set()
    await eventually(lambda: not fake.num_at_once)
    await asyncio.sleep(0.05)
    assert sequence.sent == []
