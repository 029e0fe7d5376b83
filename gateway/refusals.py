"""Requests that never begin: whatever fails while one is read is noted under its caller. Knows no protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.gateway import Gateway


@dataclass(slots=True)
class Caller:
    tenant: str = ""  # its name, once it is known


@contextmanager
def refusing(gateway: Gateway, request_id: str, tenant: str = "") -> Iterator[Caller]:
    """For the reading of one request; what it raises goes on to the caller."""
    caller = Caller(tenant)
    try:
        yield caller
    except Exception as error:
        gateway.refuse(request_id, caller.tenant, error)
        raise
