"""Certificates of a server and of a client, from files. Knows PEM files and gRPC's credentials; no service."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTls:
    """How a server proves who it is and, with `client_ca`, whom it serves: who shows a certificate signed by that.

    Raises ValueError naming the file and what is wrong with it.
    """

    certificate: Path  # PEM, with the intermediate certificates behind it
    key: Path  # PEM, without a passphrase
    client_ca: Path | None = None  # PEM; None: any client is served

    def __post_init__(self) -> None:
        _check_pair(self.certificate, self.key)
        if self.client_ca is not None:
            _check_authorities(self.client_ca)

    def credentials(self) -> grpc.ServerCredentials:
        authorities = None if self.client_ca is None else _read(self.client_ca)
        return grpc.ssl_server_credentials(
            [(_read(self.key), _read(self.certificate))],
            root_certificates=authorities,
            require_client_auth=authorities is not None,
        )

    def context(self) -> ssl.SSLContext:
        """The same for a server that is not gRPC's."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca)
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_NONE if self.client_ca is None else ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientTls:
    """Whom a client believes and, for servers that ask, how it proves who it is itself.

    Raises ValueError naming the file and what is wrong with it.
    """

    ca: Path  # PEM: signs the servers' certificates
    certificate: Path | None = None  # PEM; given together with `key`
    key: Path | None = None

    def __post_init__(self) -> None:
        _check_authorities(self.ca)
        if self.certificate is not None and self.key is not None:
            _check_pair(self.certificate, self.key)
        elif self.certificate is not None or self.key is not None:
            raise ValueError(f"certificate is {self.certificate} and key is {self.key}; give both or neither")

    def credentials(self) -> grpc.ChannelCredentials:
        key = None if self.key is None else _read(self.key)
        certificate = None if self.certificate is None else _read(self.certificate)
        return grpc.ssl_channel_credentials(_read(self.ca), key, certificate)


def server_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """None if nothing is given: the server then speaks plaintext. Raises ValueError for half of it."""
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise ValueError(f"tls-cert is {certificate} and tls-key is {key}; a server needs both")
    return ServerTls(certificate=certificate, key=key, client_ca=client_ca)


def client_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> ClientTls | None:
    """None if nothing is given: the client then speaks plaintext. Raises ValueError for half of it."""
    if ca is None and certificate is None and key is None:
        return None
    if ca is None:
        raise ValueError(f"a certificate is given ({certificate}) and no CA to check servers with; give the CA's file")
    return ClientTls(ca=ca, certificate=certificate, key=key)


def _check_pair(certificate: Path, key: Path) -> None:
    for file in (certificate, key):
        _read(file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{certificate} and {key} are no certificate and its key: {_reason(error)}") from None


def _check_authorities(ca: Path) -> None:
    _read(ca)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ValueError(f"{ca} holds no certificates of a CA in PEM: {_reason(error)}") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None


def _no_passphrase() -> str:
    """Asked for if the key has one; a service has nobody to ask."""
    raise ValueError("the key has a passphrase; store it without one")


def _reason(error: Exception) -> str:
    return (error.reason or str(error)) if isinstance(error, ssl.SSLError) else str(error)
