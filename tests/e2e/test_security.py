"""Mutual TLS between all parts, and keys that no log tells: real services, certificates made on the fly."""

from __future__ import annotations

import hashlib
import ssl
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc
import pytest

from slipstream.wire.channel import MAX_MESSAGE_BYTES, open_channel
from slipstream.wire.tls import ClientTls
from slipstream.wire.v1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    exchange_pb2,
    generation_pb2,
    generation_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)
from tests.e2e.cluster import Client, Cluster, eventually, free_port, request
from tests.tiny_models import make_checkpoint, make_similar_checkpoint
from tests.wire.certificates import Authority, Identity


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


SERVICES = ("verifier", "drafter", "gateway")
KEY = "key-of-a-tenant-that-drafts"
TENANT = {
    "name": "acme",
    "key_sha256": [hashed(KEY)],
    "proposers": ["draft_model"],
    "mode": "coupled",
    "max_wait_ms": 500,
}
WRONG_KEY = "a-key-that-nobody-has"


@dataclass(frozen=True, slots=True)
class Secured:
    cluster: Cluster
    authority: Authority
    stranger: Authority
    client: ClientTls
    log: dict[str, list[str]]  # by service
    http: str  # the gateway's https address


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    identity = authority.sign()
    client = authority.client(identity)
    target = make_checkpoint(folder / "target", logit_std=3.0)
    draft = make_similar_checkpoint(target, folder / "draft")
    log: dict[str, list[str]] = defaultdict(list)
    listener = ("--tls-cert", identity.certificate, "--tls-key", identity.key, "--tls-client-ca", authority.file)
    peers = ("--peer-ca", authority.file, "--peer-cert", identity.certificate, "--peer-key", identity.key)
    loud = ("--log-json", "--log-level", "debug")
    http = f"localhost:{free_port()}"
    with Cluster(folder, lambda name, line: log[name].append(line), client) as cluster:
        cluster.verifier(target, *map(str, listener), *loud)
        cluster.drafter(draft, *map(str, listener), *loud)
        cluster.gateway([TENANT], *map(str, (*listener, *peers)), *loud, "--http-listen", http)
        yield Secured(cluster, authority, stranger, client, log, http)


async def is_served(address: str, tls: ClientTls | None) -> bool:
    """Whether it gets as far as an answer of the service."""
    async with open_channel(address, tls) as channel:
        try:
            await generation_pb2_grpc.GenerationStub(channel).ListModels(generation_pb2.ListModelsRequest(), timeout=20)
        except grpc.aio.AioRpcError as error:
            # A gateway wants a key too, the others do not know the method; both can only be heard once let in.
            return error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
        return True


async def test_with_the_right_certificates_text_comes_through_all_three_services(secured: Secured) -> None:
    asked = request([5, 6, 7], max_tokens=40, temperature=1.0, seed=1, ignore_eos=True, request_id="told-to-all")
    async with Client(secured.cluster.address("gateway"), KEY, secured.client) as client:
        answer = await client.generate(asked)
    assert len(answer.token_ids) == 40

    async def told_to_all() -> bool:
        return all(any("told-to-all" in line for line in secured.log[name]) for name in SERVICES)

    await eventually(told_to_all, 20)


@pytest.mark.parametrize("service", SERVICES)
async def test_every_listener_refuses_plaintext_strangers_and_who_shows_nothing(secured: Secured, service: str) -> None:
    address = secured.cluster.address(service)
    nobody = secured.authority.client()
    foreign = secured.stranger.sign(name="foreign")
    other = ClientTls(ca=secured.authority.file, certificate=foreign.certificate, key=foreign.key)
    believes_others = secured.stranger.client(secured.authority.sign(name="client"))
    assert await is_served(address, secured.client)
    for refused in (None, nobody, other, believes_others):
        assert not await is_served(address, refused)


@pytest.mark.parametrize("service", SERVICES)
async def test_every_listener_bounds_a_message(secured: Secured, service: str) -> None:
    too_long = "x" * MAX_MESSAGE_BYTES
    options = (("grpc.max_send_message_length", -1),)  # our own channels would not even send it
    async with grpc.aio.secure_channel(
        secured.cluster.address(service), secured.client.credentials(), options=options
    ) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await send(channel, service, too_long)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def send(channel: grpc.aio.Channel, service: str, text: str) -> None:
    opened = exchange_pb2.Open(request_id=text)
    if service == "gateway":
        await generation_pb2_grpc.GenerationStub(channel).GenerateOnce(generation_pb2.GenerateRequest(model=text))
    elif service == "verifier":
        await answers(verifier_pb2_grpc.VerifierStub(channel).Verify(iter([verifier_pb2.VerifyRequest(open=opened)])))
    else:
        await answers(drafter_pb2_grpc.DrafterStub(channel).Draft(iter([drafter_pb2.DraftRequest(open=opened)])))


async def answers(call: Any) -> list[Any]:
    return [response async for response in call]


async def test_http_is_served_over_tls_to_who_shows_a_certificate_and_a_key(secured: Secured) -> None:
    assert await http_status(secured, KEY, secured.authority.sign(name="browser")) == 200
    assert await http_status(secured, WRONG_KEY, secured.authority.sign(name="browser")) == 401
    with pytest.raises(aiohttp.ClientError):
        await http_status(secured, KEY, secured.stranger.sign(name="browser"))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://{secured.http}/v1/models")


async def http_status(secured: Secured, key: str, identity: Identity) -> int:
    context = ssl.create_default_context(cafile=str(secured.authority.file))
    context.load_cert_chain(identity.certificate, identity.key)
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"https://{secured.http}/v1/models", headers=headers) as reply,
    ):
        return reply.status


async def test_no_log_tells_a_key_whatever_goes_wrong(secured: Secured) -> None:
    asked = request([5, 6, 7], max_tokens=4)
    address = secured.cluster.address("gateway")
    async with Client(address, KEY, secured.client) as client:
        await client.generate(asked)
    for key, wrong in ((KEY, {"temperature": -1.0}), (KEY, {"model": "none"}), (WRONG_KEY, {})):
        async with Client(address, key, secured.client) as client:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.generate(request([5, 6, 7], **wrong))
        assert key not in (refused.value.details() or "")
    lines = [line for name in SERVICES for line in secured.log[name]]
    assert any('"end"' in line for line in lines)  # they do log requests
    secrets = (KEY, WRONG_KEY, hashed(KEY), hashed(WRONG_KEY), "PRIVATE KEY")
    assert [line for line in lines if any(secret in line for secret in secrets)] == []
