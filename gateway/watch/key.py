"""Whether somebody may look: an operator's key, known by its hash. Knows no tenant, no page."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from slipstream.errors import Unauthenticated

_HASH: Final = re.compile(r"[0-9a-f]{64}")


def check_key_hash(name: str, key_sha256: str) -> None:
    """Raises ValueError unless it is a key's hash, or empty."""
    if key_sha256 and not _HASH.fullmatch(key_sha256):
        raise ValueError(
            f"{name} has {len(key_sha256)} characters; it must be the SHA-256 of a key, "
            "64 hex digits in lower case, or empty"
        )


def require_key(authorization: str, key_sha256: str) -> None:
    """Raises Unauthenticated unless the header's value is `Bearer` and the key; compared in constant time."""
    scheme, _, key = authorization.partition(" ")
    digest = hashlib.sha256(key.strip().encode(errors="surrogateescape")).hexdigest()
    if not hmac.compare_digest(digest, key_sha256) or scheme.lower() != "bearer":
        raise Unauthenticated("watching needs the operator's key; send header `Authorization: Bearer <key>`")
