"""What every gRPC call to the gateway brings along: whose it is, and until when. Knows metadata; knows no message."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import grpc

from gateway.gateway import Gateway
from gateway.tenants import Tenant

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def tenant_of(gateway: Gateway, context: Context) -> Tenant:
    """Raises Unauthenticated."""
    metadata = context.invocation_metadata() or ()
    values = [value for name, value in metadata if name == "authorization"]
    return gateway.tenants.authenticate(str(values[0]) if values else "")


def deadline_of(context: Context) -> float | None:
    """By time.monotonic()."""
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining
