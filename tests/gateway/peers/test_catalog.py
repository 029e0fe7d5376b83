"""Which model a request means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.config import GatewayConfig
from gateway.gateway import Gateway
from gateway.policy.tenants import default_tenants
from slipstream.errors import InvalidRequest, Unavailable, UnknownModel
from tests.gateway.fakes import FakeVerifier, eventually, running_gateway


@pytest.fixture
def verifiers() -> list[FakeVerifier]:
    first, second = FakeVerifier([], "first"), FakeVerifier([], "second")
    second.info = replace(second.info, name="other", max_model_len=32)
    return [first, second]


async def test_models_are_found_by_name_with_their_own_limits(verifiers: list[FakeVerifier]) -> None:
    async with running_gateway(verifiers) as gateway:
        assert gateway.catalog.find("other").info.max_model_len == 32
        assert [info.name for info in await gateway.catalog.list()] == ["other", "tiny"]


async def test_a_name_is_needed_if_there_are_several(verifiers: list[FakeVerifier]) -> None:
    async with running_gateway(verifiers) as gateway:
        with pytest.raises(InvalidRequest, match="model is ''; it must be one of other, tiny"):
            gateway.catalog.find("")
        with pytest.raises(UnknownModel, match="'third' is not served here; it must be one of other, tiny"):
            gateway.catalog.find("third")


async def test_a_model_is_still_known_while_its_verifier_is_away(verifiers: list[FakeVerifier]) -> None:
    async with running_gateway(verifiers[:1]) as gateway:
        await verifiers[0].die()
        await eventually(lambda: gateway.num_peers == 0)
        assert gateway.catalog.find("").info.name == "tiny"
        assert await gateway.catalog.list() == []


async def test_before_any_verifier_was_reached_everything_is_unavailable() -> None:
    gateway = Gateway(GatewayConfig(verifiers=("127.0.0.1:1",)), default_tenants(remote=False))
    with pytest.raises(Unavailable, match=r"no verifier has been reached yet \(asked: 127.0.0.1:1\)"):
        gateway.catalog.find("")
