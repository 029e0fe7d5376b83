"""One request's life across its two streams, with scripted peers."""

from __future__ import annotations

import time

import pytest

from gateway.policy.tenants import Tenant
from slipstream.errors import Exhausted
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
    opened,
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


async def test_a_client_that_goes_closes_the_sequence_everywhere(verifier: FakeVerifier, drafter: FakeDrafter) -> None:
    async with running_gateway([verifier], [drafter]) as gateway:
        client = Client(gateway, DRAFTED)
        sequence = await opened(drafter)
        await opened(verifier)
        client.task.cancel()
        await eventually(lambda: verifier.closes == drafter.closes == [sequence])


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
