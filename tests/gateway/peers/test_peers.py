"""Who drafts elsewhere, and a tritonserver in a gateway whose verifier is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.policy.tenants import Tenant
from slipstream.exchange import Draft
from tests.gateway.fake_tritonserver import FakeTritonServer, Script
from tests.gateway.fakes import PROMPT, Client, FakeVerifier, eventually, running_gateway

TEXT = (*PROMPT, *range(31, 60))
DRAFTED = Tenant(name="drafted", anonymous=True, proposers=("tritonserver",), num_draft_tokens=2)
AUTO = Tenant(name="auto", anonymous=True, proposers=("auto",), num_draft_tokens=2)


@pytest.fixture
async def fake() -> AsyncIterator[FakeTritonServer]:
    server = FakeTritonServer(Script(TEXT))
    await server.start()
    yield server
    await server.die()


def path(draft: Draft) -> tuple[int, ...]:
    return tuple(token.token_id for token in draft.tokens)


@pytest.mark.parametrize("tenant", [DRAFTED, AUTO])
async def test_what_a_tritonserver_says_reaches_the_verifier_and_its_times_the_controller(
    fake: FakeTritonServer, tenant: Tenant
) -> None:
    verifier = FakeVerifier([])
    async with running_gateway([verifier], tenants=[tenant], tritonserver=fake.config) as gateway:
        peers = gateway._peers
        assert peers.offered == {"tritonserver"}
        assert peers.tritonserver is not None
        await eventually(lambda: peers.tritonserver and peers.tritonserver.available, 10)
        gateway._controllers.of(verifier.address).step_times.note(1, 0.02)  # before that nobody elsewhere is asked
        client = Client(gateway, tenant)
        await eventually(lambda: verifier.drafts)
        draft = verifier.drafts[0]
        assert (draft.base, draft.proposer, path(draft)) == (3, "tritonserver", TEXT[3:8])
        verifier.commit(draft.sequence_id, 3, TEXT[3:6], num_accepted=2, num_draft_tokens=2, proposer="tritonserver")
        await eventually(lambda: len(verifier.drafts) == 2)
        assert path(verifier.drafts[1])[:2] == TEXT[6:8]
        (controller,) = gateway._controllers.all
        times = controller.draft_times["tritonserver"]
        assert times.seconds_per_token() + times.round_trip > 0
        assert gateway.metrics.tritonserver_calls.value("answered") == 2
        verifier.finish(draft.sequence_id, 6, TEXT[6:7])
        await client.task
    assert tuple(client.token_ids) == TEXT[3:7]


async def test_a_policy_that_names_a_tritonserver_where_none_is_known_is_complained_of_and_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    verifier = FakeVerifier([])
    async with running_gateway([verifier], tenants=[DRAFTED]) as gateway:
        assert gateway._peers.offered == set()
        client = Client(gateway, DRAFTED)
        await eventually(lambda: verifier.opens)
        verifier.finish(verifier.opens[0].sequence_id, 3, TEXT[3:4])
        await client.task
    assert tuple(client.token_ids) == TEXT[3:4]
    assert "start the gateway with --tritonserver" in caplog.text


async def test_where_none_is_known_auto_does_not_consider_it() -> None:
    verifier = FakeVerifier([])
    async with running_gateway([verifier], tenants=[AUTO]) as gateway:
        client = Client(gateway, AUTO)
        await eventually(lambda: verifier.opens)
        assert verifier.opens[0].proposers == ("ngram",)
        client.task.cancel()
