"""One request's life across its two streams, with scripted peers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from gateway.peers.recovery import MAX_LOSSES
from gateway.policy.tenants import Tenant
from slipstream.errors import Exhausted, Unavailable, VocabularyMismatch
from slipstream.exchange import Commit
from slipstream.request import FinishReason, VerificationMode
from tests.gateway.fakes import (
    DRAFTED,
    PROMPT,
    Client,
    FakeDrafter,
    FakeVerifier,
    Journal,
    eventually,
    running_gateway,
)

NGRAM = Tenant(name="ngram", anonymous=True, proposers=("ngram",), num_draft_tokens=2)
BOTH = Tenant(
    name="both",
    anonymous=True,
    proposers=("draft_model", "ngram"),
    mode="coupled",
    num_draft_tokens=3,
    fan_out=5,
    max_wait_ms=1.5,
)


@pytest.fixture
def journal() -> Journal:
    return []


@pytest.fixture
def verifier(journal: Journal) -> FakeVerifier:
    return FakeVerifier(journal)


@pytest.fixture
def drafter(journal: Journal) -> FakeDrafter:
    return FakeDrafter(journal)


async def opened(peer: Any, count: int = 1) -> int:
    """The id of the newest sequence, once `count` were opened on the peer."""
    await eventually(lambda: len(peer.opens) >= count)
    return int(peer.opens[-1].sequence_id)


async def refuse_again_and_again(verifier: FakeVerifier, sequence_id: int) -> None:
    refused = len(verifier.opens)
    while True:
        refused += 1
        await opened(verifier, refused)
        verifier.fail(sequence_id, Exhausted("no room at all"))


async def test_committed_tokens_reach_the_client_in_order_until_the_end(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway)
        sequence = await opened(verifier)
        verifier.commit(sequence, 3, [1, 2], num_accepted=1, num_draft_tokens=1)
        verifier.finish(sequence, 5, [3])
        await client.task
    assert client.token_ids == [1, 2, 3]
    assert [drafted for delta in client.deltas for drafted in delta.drafted] == [True, False, False]
    assert client.deltas[-1].finish_reason is FinishReason.LENGTH
    assert verifier.closes == []  # it ended the sequence itself


async def test_both_sides_are_opened_as_the_tenant_says(verifier: FakeVerifier, drafter: FakeDrafter) -> None:
    async with running_gateway([verifier], [drafter]) as gateway:
        client = Client(gateway, BOTH, seed=7)
        await opened(verifier)
        await opened(drafter)
        client.task.cancel()
    at_verifier, at_drafter = verifier.opens[0], drafter.opens[0]
    for request in (at_verifier, at_drafter):
        assert (request.token_ids, request.num_prompt_tokens, request.seed) == (PROMPT, 3, 7)
        assert (request.num_draft_tokens, request.fan_out, request.max_wait_us) == (3, 5, 1500)
        assert (request.mode, request.tenant) == (VerificationMode.COUPLED, "both")
        assert request.vocabulary_hash == verifier.info.vocabulary_hash
    assert at_verifier.proposers == ("draft_model", "ngram")
    assert at_drafter.proposers == ("draft_model",)
    assert at_verifier.sequence_id == at_drafter.sequence_id


async def test_commits_go_to_the_drafter_and_its_drafts_to_the_verifier(
    verifier: FakeVerifier, drafter: FakeDrafter
) -> None:
    async with running_gateway([verifier], [drafter]) as gateway:
        client = Client(gateway, DRAFTED)
        sequence = await opened(drafter)
        verifier.commit(sequence, 3, [1])
        await eventually(lambda: drafter.commits)
        drafter.draft(sequence, 4, [2, 3])
        await eventually(lambda: verifier.drafts)
        verifier.commit(sequence, 4, [2, 3, 4], num_accepted=2, num_draft_tokens=2, finish_reason=FinishReason.STOP)
        await client.task
        await eventually(lambda: len(drafter.commits) == 2)
    assert drafter.commits[0].token_ids == (1,)
    assert drafter.commits[1].finish_reason is FinishReason.STOP
    assert drafter.closes == []  # the last commit says it
    assert [token.token_id for token in verifier.drafts[0].tokens] == [2, 3]
    usage, timings = client.deltas[-1].usage, client.deltas[-1].timings
    assert usage is not None
    assert timings is not None
    assert (usage.accepted_tokens, usage.accepted_per_position) == (2, [1, 1, 0, 0])
    assert timings.draft_us == 700
    assert timings.wire_us > 0


async def test_a_step_of_two_sequences_is_one_message_to_each_side(
    verifier: FakeVerifier, drafter: FakeDrafter, journal: Journal
) -> None:
    tenant = Tenant(name="all", anonymous=True, proposers=("ngram", "draft_model"), num_draft_tokens=2)
    async with running_gateway([verifier], [drafter]) as gateway:
        clients = [Client(gateway, tenant, prompt=(1, 2, 3, 4)) for _ in range(2)]
        await opened(drafter, 2)
        await opened(verifier, 2)
        journal.clear()
        first, second = (request.sequence_id for request in verifier.opens)
        verifier.commit_all([Commit(first, 4, (1, 2, 3, 4)), Commit(second, 4, (1, 2, 3, 4))])
        await eventually(lambda: len(journal) == 2)
        for client in clients:
            client.task.cancel()
    sent = dict(journal[:2])
    assert len(sent["drafter"].commits.commits) == 2
    assert len(sent["verifier"].drafts.drafts) == 2


async def test_a_drafter_on_the_verifiers_cores_rests_while_ngram_has_drafts(
    verifier: FakeVerifier, drafter: FakeDrafter
) -> None:
    tenant = Tenant(name="both", anonymous=True, proposers=("ngram", "draft_model"), num_draft_tokens=2)
    drafter.info = replace(drafter.info, device="cpu")
    async with running_gateway([verifier], [drafter]) as gateway:
        client = Client(gateway, tenant, prompt=(1, 2, 3, 4, 5, 1, 2, 3, 4))
        sequence = await opened(verifier)
        await opened(drafter)
        verifier.commit(sequence, 9, [5, 1], num_accepted=2, num_draft_tokens=2)
        await eventually(lambda: len(verifier.drafts) == 2)
        assert not drafter.commits
        verifier.commit(sequence, 11, [99], num_accepted=0, num_draft_tokens=2)
        await eventually(lambda: [commit.base for commit in drafter.commits] == [9, 11])
        client.task.cancel()


async def test_ngram_drafts_are_in_the_tree_for_two_passes(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, NGRAM, prompt=(1, 2, 3, 4, 1, 2))
        sequence = await opened(verifier)
        await eventually(lambda: verifier.drafts)
        verifier.commit(sequence, 6, [3, 4, 1], num_accepted=2, num_draft_tokens=2)
        await eventually(lambda: len(verifier.drafts) == 2)
        client.task.cancel()
    assert [token.token_id for token in verifier.drafts[0].tokens] == [3, 4, 1, 2, 3]
    assert (verifier.drafts[1].base, verifier.drafts[1].draw) == (9, 1)


async def test_a_drafter_that_dies_costs_nothing_and_drafting_resumes_when_it_is_back(
    verifier: FakeVerifier, drafter: FakeDrafter
) -> None:
    async with running_gateway([verifier], [drafter]) as gateway:
        client = Client(gateway, DRAFTED)
        sequence = await opened(drafter)
        verifier.commit(sequence, 3, [1])
        await eventually(lambda: drafter.commits)
        await drafter.die()
        await eventually(lambda: gateway.num_peers == 1)
        verifier.commit(sequence, 4, [2])
        await eventually(lambda: client.token_ids == [1, 2])
        await drafter.start()
        await eventually(lambda: len(drafter.opens) == 2, seconds=2.0)
        drafter.draft(sequence, 5, [9], draw=1 << 32)
        await eventually(lambda: verifier.drafts)
        verifier.finish(sequence, 5, [3])
        await client.task
    before, after = drafter.opens
    assert after.token_ids == (*PROMPT, 1, 2)
    assert after.num_prompt_tokens == 3
    assert after.epoch == before.epoch + 1
    assert after.nonce != before.nonce
    assert client.token_ids == [1, 2, 3]


async def test_a_sequence_moves_to_another_drafter_at_once(verifier: FakeVerifier, journal: Journal) -> None:
    drafters = [FakeDrafter(journal, "a"), FakeDrafter(journal, "b")]
    async with running_gateway([verifier], drafters) as gateway:
        client = Client(gateway, DRAFTED)
        await eventually(lambda: any(drafter.opens for drafter in drafters))
        used, spare = sorted(drafters, key=lambda drafter: not drafter.opens)
        await used.die()
        await opened(spare)
        client.task.cancel()
    assert spare.opens[0].epoch == 1


async def test_drafts_of_an_earlier_epoch_are_dropped(verifier: FakeVerifier, journal: Journal) -> None:
    drafter, other = FakeDrafter(journal), FakeVerifier(journal, "other")
    async with running_gateway([verifier, other], [drafter]) as gateway:
        client = Client(gateway, DRAFTED)
        sequence = await opened(drafter)
        used, spare = (verifier, other) if verifier.opens else (other, verifier)
        await used.die()
        await opened(drafter, 2)
        drafter.draft(sequence, 3, [5], draw=3)
        drafter.draft(sequence, 3, [6], draw=1 << 32)
        await eventually(lambda: spare.drafts)
        client.task.cancel()
    assert [draft.draw for draft in spare.drafts] == [1 << 32]


async def test_a_drafter_of_another_vocabulary_is_left_alone_and_named_once(
    verifier: FakeVerifier, drafter: FakeDrafter, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway([verifier], [drafter]) as gateway:
        for number in (1, 2):
            client = Client(gateway, DRAFTED)
            sequence = await opened(drafter, number)
            drafter.fail(sequence, VocabularyMismatch("draft model 'x' has another vocabulary"))
            await asyncio.sleep(0.05)
            verifier.finish(sequence, 3, [1])
            await client.task
            assert client.token_ids == [1]
    assert caplog.text.count("has another vocabulary") == 1


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


async def test_a_client_that_goes_closes_the_sequence_everywhere(verifier: FakeVerifier, drafter: FakeDrafter) -> None:
    async with running_gateway([verifier], [drafter]) as gateway:
        client = Client(gateway, DRAFTED)
        sequence = await opened(drafter)
        await opened(verifier)
        client.task.cancel()
        await eventually(lambda: verifier.closes == drafter.closes == [sequence])


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


async def test_a_sequence_error_of_the_verifier_ends_that_call_only(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        refused, other = Client(gateway), Client(gateway)
        await opened(verifier, 2)
        first, second = (request.sequence_id for request in verifier.opens)
        verifier.fail(first, Exhausted("no KV blocks left"))
        verifier.finish(second, 3, [1])
        await other.task
        with pytest.raises(Exhausted, match="no KV blocks left"):
            await refused.task


async def test_duplicated_commits_change_nothing(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway)
        sequence = await opened(verifier)
        for _ in range(2):
            verifier.commit(sequence, 3, [1, 2])
        verifier.commit(sequence + 1, 3, [9])
        verifier.finish(sequence, 5, [3])
        await client.task
    assert client.token_ids == [1, 2, 3]


async def test_the_deadline_is_passed_on(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, deadline=time.monotonic() + 5)
        await opened(verifier)
        client.task.cancel()
    assert 3000 < verifier.opens[0].deadline_ms <= 5000
