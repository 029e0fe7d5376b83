"""Certificates made on the fly, as files: a CA, who it signed, and a stranger. Knows trustme; no server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

from slipstream.wire.tls import ClientTls, ServerTls


@dataclass(frozen=True, slots=True)
class Identity:
    certificate: Path
    key: Path


class Authority:
    """One CA; what it signs is written below `folder`."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self._folder = folder
        self._name = name
        self._ca = trustme.CA()
        self.file = folder / f"{name}-ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def sign(self, *host_names: str, name: str = "service") -> Identity:
        leaf = self._ca.issue_cert(*(host_names or ("localhost", "127.0.0.1")))
        identity = Identity(self._folder / f"{self._name}-{name}.pem", self._folder / f"{self._name}-{name}.key")
        identity.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(identity.key)
        return identity

    def server(self, *, mutual: bool = False) -> ServerTls:
        identity = self.sign()
        return ServerTls(certificate=identity.certificate, key=identity.key, client_ca=self.file if mutual else None)

    def client(self, identity: Identity | None = None) -> ClientTls:
        if identity is None:
            return ClientTls(ca=self.file)
        return ClientTls(ca=self.file, certificate=identity.certificate, key=identity.key)
