"""A request whose verifier is lost, full or draining goes on at another, or is told why it cannot."""

from __future__ import annotations

import asyncio

import pytest

from gateway.peers.recovery import MAX_LOSSES
from slipstream.errors import Exhausted, Unavailable
from tests.gateway.fakes import (
    PROMPT,
    Client,
    FakeVerifier,
    Journal,
    eventually,
    opened,
    running_gateway,
)


async def refuse_again_and_again(verifier: FakeVerifier, sequence_id: int) -> None:
    refused = len(verifier.opens)
    while True:
        refused += 1
        await opened(verifier, refused)
        verifier.fail(sequence_id, Exhausted("no room at all"))


async def test_a_lost_verifier_is_replaced_by_another_with_what_is_committed(
    verifier: FakeVerifier, journal: Journal
) -> None:
    other = FakeVerifier(journal, "other")
    async with running_gateway([verifier, other]) as gateway:
        client = Client(gateway, seed=11)
        await eventually(lambda: verifier.opens or other.opens)
        used, spare = (verifier, other) if verifier.opens else (other, verifier)
        sequence = used.opens[0].sequence_id
        used.commit(sequence, 3, [1, 2])
        await eventually(lambda: client.token_ids == [1, 2])
        await used.die()
        await opened(spare)
        spare.finish(sequence, 5, [3])
        await client.task
    moved = spare.opens[0]
    assert (moved.token_ids, moved.num_prompt_tokens, moved.seed) == ((*PROMPT, 1, 2), 3, 11)
    assert moved.nonce != used.opens[0].nonce
    assert client.token_ids == [1, 2, 3]


async def test_a_verifier_that_comes_back_in_time_goes_on(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway)
        sequence = await opened(verifier)
        verifier.commit(sequence, 3, [1])
        await eventually(lambda: client.token_ids == [1])
        await verifier.die()
        await verifier.start()
        await opened(verifier, 2)
        verifier.finish(sequence, 4, [2])
        await client.task
    assert client.token_ids == [1, 2]


async def test_without_a_verifier_the_call_ends_as_unavailable_after_a_bounded_wait(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier], recovery_seconds=0.2) as gateway:
        client = Client(gateway)
        sequence = await opened(verifier)
        verifier.commit(sequence, 3, [1])
        await eventually(lambda: client.token_ids == [1])
        await verifier.die()
        with pytest.raises(Unavailable, match=r"no verifier serves 'tiny' now .*waited 0.2 s.*1 output tokens"):
            await asyncio.wait_for(client.task, 3)


async def test_a_full_verifier_sends_the_sequence_to_one_with_room(verifier: FakeVerifier, journal: Journal) -> None:
    other = FakeVerifier(journal, "other")
    async with running_gateway([verifier, other]) as gateway:
        client = Client(gateway)
        await eventually(lambda: verifier.opens or other.opens)
        full, roomy = (verifier, other) if verifier.opens else (other, verifier)
        full.fail(full.opens[0].sequence_id, Exhausted("64 sequences run and 256 wait"))
        sequence = await opened(roomy)
        roomy.finish(sequence, 3, [1])
        await client.task
    assert client.token_ids == [1]
    assert full.closes == []  # it holds nothing of it


async def test_when_all_verifiers_are_full_the_client_is_told_what_the_last_said(
    verifier: FakeVerifier, journal: Journal
) -> None:
    other = FakeVerifier(journal, "other")
    async with running_gateway([verifier, other]) as gateway:
        client = Client(gateway)
        for number in (1, 2):
            await eventually(lambda number=number: len(verifier.opens) + len(other.opens) == number)  # type: ignore[misc]
            name = journal[-1][0]
            peer = verifier if name == "verifier" else other
            peer.fail(peer.opens[0].sequence_id, Exhausted("no room"))
        with pytest.raises(Exhausted, match="no room"):
            await client.task


async def test_a_sequence_that_has_begun_waits_for_room_and_then_says_who_refused(
    verifier: FakeVerifier, journal: Journal
) -> None:
    other = FakeVerifier(journal, "other")
    async with running_gateway([verifier, other], recovery_seconds=0.6) as gateway:
        client = Client(gateway)
        await eventually(lambda: verifier.opens or other.opens)
        used, full = (verifier, other) if verifier.opens else (other, verifier)
        sequence = used.opens[0].sequence_id
        used.commit(sequence, 3, [1])
        await eventually(lambda: client.token_ids == [1])
        await used.die()
        await opened(full)
        full.fail(sequence, Exhausted("no room"))
        await opened(full, 2)  # asked again
        full.commit(sequence, 4, [2])
        await eventually(lambda: client.token_ids == [1, 2])
        full.fail(sequence, Exhausted("no room at all"))
        refusing = asyncio.create_task(refuse_again_and_again(full, sequence))
        with pytest.raises(Unavailable, match=r"waited 0\.6 s\); 2 output tokens .* said: no room at all"):
            await client.task
        refusing.cancel()


async def test_a_draining_verifier_that_refuses_costs_a_move(verifier: FakeVerifier, journal: Journal) -> None:
    other = FakeVerifier(journal, "other")
    async with running_gateway([verifier, other]) as gateway:
        client = Client(gateway)
        await eventually(lambda: verifier.opens or other.opens)
        draining, spare = (verifier, other) if verifier.opens else (other, verifier)
        draining.fail(draining.opens[0].sequence_id, Unavailable("the server is shutting down"))
        spare.finish(await opened(spare), 3, [1])
        await client.task
    assert client.token_ids == [1]


async def test_a_sequence_that_is_lost_with_every_verifier_is_given_up(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier], recovery_seconds=60) as gateway:
        client = Client(gateway)
        for number in range(1, MAX_LOSSES + 1):
            await opened(verifier, number)
            await verifier.die()
            if number < MAX_LOSSES:
                await verifier.start()
        with pytest.raises(Unavailable, match="one after the other, and got no token between"):
            await asyncio.wait_for(client.task, 5)
