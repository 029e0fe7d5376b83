"""What a request notices of drafters that rest, die, come back or do not fit: only how fast it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.policy.tenants import Tenant
from slipstream.errors import VocabularyMismatch
from tests.gateway.fakes import (
    DRAFTED,
    PROMPT,
    Client,
    FakeDrafter,
    FakeVerifier,
    Journal,
    eventually,
    opened,
    running_gateway,
)


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
