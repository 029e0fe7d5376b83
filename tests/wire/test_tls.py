"""Certificates: who is served, who is refused, and what is said of files that cannot be used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from slipstream.wire.channel import open_channel
from slipstream.wire.tls import ClientTls, ServerTls, client_tls, server_tls
from tests.wire.certificates import Authority


@asynccontextmanager
async def serving(tls: ServerTls) -> AsyncIterator[str]:
    server = grpc.aio.server()
    checks = health.aio.HealthServicer()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    port = server.add_secure_port("127.0.0.1:0", tls.credentials())
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def is_served(address: str, tls: ClientTls | None, server_name: str = "") -> bool:
    async with open_channel(address, tls, server_name=server_name) as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.UNAVAILABLE
        return True


async def test_only_a_client_that_speaks_tls_and_knows_the_ca_is_served(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with serving(ours.server()) as address:
        assert await is_served(address, ours.client())
        assert not await is_served(address, None)
        assert not await is_served(address, other.client())


async def test_a_server_that_asks_serves_only_clients_with_a_certificate_of_its_ca(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    stranger = other.sign(name="client")
    async with serving(ours.server(mutual=True)) as address:
        assert await is_served(address, ours.client(ours.sign(name="client")))
        assert not await is_served(address, ours.client())
        assert not await is_served(address, ClientTls(ca=ours.file, certificate=stranger.certificate, key=stranger.key))


async def test_a_server_found_by_address_is_known_by_its_name(tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    named = ours.sign("verifiers.example", name="named")
    async with serving(ServerTls(certificate=named.certificate, key=named.key)) as address:
        assert await is_served(address, ours.client(), "verifiers.example")
        assert not await is_served(address, ours.client())


def test_nothing_given_is_plaintext() -> None:
    assert server_tls(None, None, None) is None
    assert client_tls(None, None, None) is None


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    one, two = ours.sign(name="one"), ours.sign(name="two")
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("not a certificate")
    with pytest.raises(ValueError, match=r"missing\.pem: cannot be read: No such file"):
        ServerTls(certificate=missing, key=one.key)
    with pytest.raises(ValueError, match=r"one\.pem and .*two\.key are no certificate and its key"):
        ServerTls(certificate=one.certificate, key=two.key)
    with pytest.raises(ValueError, match=r"text\.pem and .*one\.key are no certificate"):
        ServerTls(certificate=text, key=one.key)
    with pytest.raises(ValueError, match=r"text\.pem holds no certificates of a CA"):
        ServerTls(certificate=one.certificate, key=one.key, client_ca=text)
    with pytest.raises(ValueError, match=r"text\.pem holds no certificates of a CA"):
        ClientTls(ca=text)


def test_half_of_what_is_needed_is_told(tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    one = ours.sign(name="one")
    with pytest.raises(ValueError, match="tls-key is None; a server needs both"):
        server_tls(one.certificate, None, None)
    with pytest.raises(ValueError, match="give both or neither"):
        client_tls(ours.file, one.certificate, None)
    with pytest.raises(ValueError, match="give the CA's file"):
        client_tls(None, one.certificate, one.key)


def test_a_key_with_a_passphrase_is_told_and_nobody_is_asked(tmp_path: Path) -> None:
    one = Authority(tmp_path).sign(name="one")
    key = serialization.load_pem_private_key(one.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    pem = serialization.Encoding.PEM
    one.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
    with pytest.raises(ValueError, match="has a passphrase; store it without one"):
        ServerTls(certificate=one.certificate, key=one.key)
