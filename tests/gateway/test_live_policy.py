"""Policies at work in a gateway with scripted peers: each tenant's own, taken up live, and nobody else's to choose."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from gateway.completion import Completion
from gateway.control.controller import DECIDE_PASSES
from gateway.policy.tenants import Tenant, Tenants
from slipstream.errors import Exhausted, InvalidRequest
from slipstream.exchange import Update
from slipstream.wire.v1 import generation_pb2
from tests.gateway.fakes import Client, FakeDrafter, FakeVerifier, Journal, eventually, running_gateway

PROMPT = (1, 2, 3, 4, 9, 1, 2, 3, 4)
BOTH = Tenant(name="both", anonymous=True, proposers=("ngram", "draft_model"), num_draft_tokens=4, fan_out=3)
NGRAM = Tenant(name="ngram", key_sha256=("a" * 64,), proposers=("ngram",), num_draft_tokens=2)
NONE = Tenant(name="none", key_sha256=("b" * 64,), proposers=("none",))


@pytest.fixture
def journal() -> Journal:
    return []


@pytest.fixture
def verifier(journal: Journal) -> FakeVerifier:
    return FakeVerifier(journal)


@pytest.fixture
def drafter(journal: Journal) -> FakeDrafter:
    return FakeDrafter(journal)


async def test_tenants_under_one_load_get_their_own_proposers(verifier: FakeVerifier, drafter: FakeDrafter) -> None:
    async with running_gateway([verifier], [drafter], [BOTH, NGRAM, NONE]) as gateway:
        clients = [Client(gateway, tenant, prompt=PROMPT) for tenant in (BOTH, NGRAM, NONE) for _ in range(2)]
        await eventually(lambda: len(verifier.opens) == 6 and len(drafter.opens) == 2)
        await eventually(lambda: len(verifier.drafts) == 4)
        for client in clients:
            client.task.cancel()
    wanted = {"both": (("ngram", "draft_model"), 4), "ngram": (("ngram",), 2), "none": ((), 0)}
    assert {open_.tenant: (open_.proposers, open_.num_draft_tokens) for open_ in verifier.opens} == wanted
    assert {open_.tenant for open_ in drafter.opens} == {"both"}
    drafted_for = {draft.sequence_id for draft in verifier.drafts}
    assert drafted_for == {open_.sequence_id for open_ in verifier.opens if open_.tenant != "none"}


async def test_a_policy_change_reaches_running_sequences_without_dropping_one(
    verifier: FakeVerifier, drafter: FakeDrafter
) -> None:
    async with running_gateway([verifier], [drafter], [BOTH]) as gateway:
        client = Client(gateway, BOTH)
        await eventually(lambda: drafter.opens)
        sequence = verifier.opens[0].sequence_id
        gateway.take_up(Tenants([replace(BOTH, num_draft_tokens=2, fan_out=1, max_wait_ms=3.0)]))
        update = Update(sequence, 2, 1, 3000)
        await eventually(lambda: verifier.updates == drafter.updates == [update])
        gateway.take_up(Tenants([replace(BOTH, proposers=("ngram",))]))
        await eventually(lambda: drafter.closes == [sequence])
        await eventually(lambda: verifier.updates[1:] == [Update(sequence, 4, 0, 0)])
        verifier.finish(sequence, 3, [7])
        await client.task
    assert client.token_ids == [7]


async def test_a_sequence_that_moves_is_opened_as_it_was_drafted_last(verifier: FakeVerifier, journal: Journal) -> None:
    other = FakeVerifier(journal, "other")
    async with running_gateway([verifier, other], tenants=[NGRAM]) as gateway:
        client = Client(gateway, NGRAM)
        await eventually(lambda: verifier.opens or other.opens)
        used, spare = (verifier, other) if verifier.opens else (other, verifier)
        gateway.take_up(Tenants([replace(NGRAM, num_draft_tokens=5)]))
        await eventually(lambda: used.updates)
        await used.die()
        await eventually(lambda: spare.opens)
        client.task.cancel()
    assert spare.opens[0].num_draft_tokens == 5


async def test_what_a_drafter_says_beyond_what_is_committed_steers_nothing(journal: Journal) -> None:
    """Two runs: the same commits, other drafts. The verifier hears the same of how to go on."""
    gated = Tenant(name="gated", anonymous=True, proposers=("draft_model",), off_below_acceptance=0.5)
    heard = []
    for drafted in ([5, 6, 7], [90, 91, 92]):
        verifier, drafter = FakeVerifier(journal), FakeDrafter(journal)
        async with running_gateway([verifier], [drafter], [gated]) as gateway:
            client = Client(gateway, gated, prompt=(10, 20))
            await eventually(lambda drafter=drafter: drafter.opens)
            sequence = verifier.opens[0].sequence_id
            for i in range(DECIDE_PASSES):
                drafter.draft(sequence, 2 + i, drafted, draw=i)
                await eventually(lambda verifier=verifier, i=i: len(verifier.drafts) > i)
                commit = {"num_draft_tokens": 3, "proposer": "draft_model"} if i else {}
                verifier.commit(sequence, 2 + i, [100 + i], **commit)
                await eventually(lambda client=client, i=i: len(client.token_ids) > i)
            await eventually(lambda verifier=verifier: verifier.updates)
            client.task.cancel()
        heard.append([replace(update, sequence_id=0) for update in verifier.updates])
    assert heard[0] == heard[1] == [Update(0, 0, 0, 0)]


async def test_a_tenants_later_requests_are_drafted_from_its_own_earlier_output_and_no_other_tenants(
    verifier: FakeVerifier,
) -> None:
    sharing = [replace(tenant, proposers=("ngram",), recent_output_tokens=100) for tenant in (BOTH, NGRAM)]
    async with running_gateway([verifier], tenants=sharing) as gateway:
        first = Client(gateway, sharing[0], prompt=(1, 2))
        await eventually(lambda: verifier.opens)
        verifier.finish(verifier.opens[0].sequence_id, 2, [50, 51, 52, 53])
        await first.task
        later = [Client(gateway, tenant, prompt=(8, 50, 51)) for tenant in (sharing[1], sharing[0])]
        await eventually(lambda: len(verifier.opens) == 3 and verifier.drafts)
        for client in later:
            client.task.cancel()
    (draft,) = verifier.drafts
    assert draft.sequence_id == next(o.sequence_id for o in verifier.opens[1:] if o.tenant == sharing[0].name)
    assert [token.token_id for token in draft.tokens] == [52, 53]


async def test_in_ratio_mode_the_output_of_a_callers_own_seed_is_not_drafted_from(verifier: FakeVerifier) -> None:
    sharing = replace(NGRAM, recent_output_tokens=100)
    async with running_gateway([verifier], tenants=[sharing]) as gateway:
        first = Client(gateway, sharing, prompt=(1, 2), seed=7)
        await eventually(lambda: verifier.opens)
        verifier.finish(verifier.opens[0].sequence_id, 2, [50, 51, 52, 53])
        await first.task
        later = Client(gateway, sharing, prompt=(8, 50, 51))
        await eventually(lambda: len(verifier.opens) == 2)
        verifier.finish(verifier.opens[1].sequence_id, 3, [9])
        await later.task
    assert verifier.drafts == []


async def test_the_adapter_is_the_policys_and_a_running_request_keeps_its_own(
    verifier: FakeVerifier, drafter: FakeDrafter
) -> None:
    adapted = replace(BOTH, adapter="legal")
    async with running_gateway([verifier], [drafter], [adapted, NGRAM]) as gateway:
        first = Client(gateway, adapted, prompt=PROMPT)
        await eventually(lambda: drafter.opens)
        gateway.take_up(Tenants([replace(BOTH, adapter="code"), NGRAM]))
        await drafter.die()
        await drafter.start()
        await eventually(lambda: len(drafter.opens) == 2)
        second = Client(gateway, replace(BOTH, adapter="code"), prompt=PROMPT)
        await eventually(lambda: len(drafter.opens) == 3)
        for client in (first, second):
            client.task.cancel()
    assert [opened.adapter for opened in drafter.opens] == ["legal", "legal", "code"]


def test_callers_have_no_word_for_a_proposer() -> None:
    words = {field.name for field in generation_pb2.GenerateRequest.DESCRIPTOR.fields}
    words |= {field.name for field in fields(Completion)}
    forbidden = ("propos", "draft", "adapter", "fan_out", "verification")
    assert [word for word in words if any(part in word for part in forbidden)] == []


async def test_tokens_per_minute_are_charged_as_they_come_and_refuse_the_next_request(verifier: FakeVerifier) -> None:
    limited = replace(NONE, tokens_per_minute=10)
    async with running_gateway([verifier], tenants=[limited]) as gateway:
        client = Client(gateway, limited, prompt=(1, 2, 3))
        await eventually(lambda: verifier.opens)
        verifier.finish(verifier.opens[0].sequence_id, 3, [4, 5, 6, 7, 8, 9, 10])
        await client.task
        refused = Client(gateway, limited, prompt=(1, 2, 3))
        with pytest.raises(Exhausted, match="10 tokens per minute") as raised:
            await refused.task
    assert 0 < raised.value.retry_after_seconds <= 6.1


async def test_a_prompt_longer_than_the_tenants_limit_is_refused(verifier: FakeVerifier) -> None:
    short = replace(NONE, max_prompt_tokens=2)
    async with running_gateway([verifier], tenants=[short]) as gateway:
        with pytest.raises(InvalidRequest, match=r"prompt has 3 tokens; it must be <= 2, your tenant's limit"):
            await Client(gateway, short, prompt=(1, 2, 3)).task
