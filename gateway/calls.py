"""What every gRPC call to the gateway brings along: whose it is, and until when. Knows metadata; knows no message."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final, TypeAlias

import grpc

from gateway.completion import Completion
from gateway.gateway import Gateway
from gateway.policy.tenants import Tenant

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

TRACEPARENT: Final = "traceparent"  # metadata and HTTP header


def tenant_of(gateway: Gateway, context: Context) -> Tenant:
    """Raises Unauthenticated."""
    metadata = context.invocation_metadata() or ()
    values = [value for name, value in metadata if name == "authorization"]
    return gateway.tenants.authenticate(str(values[0]) if values else "")


def traced(completion: Completion, context: Context) -> Completion:
    """With the trace context that the caller sent, if any."""
    metadata = context.invocation_metadata() or ()
    sent = next((str(value) for name, value in metadata if name == TRACEPARENT), "")
    return replace(completion, traceparent=sent) if sent else completion


def deadline_of(context: Context) -> float | None:
    """By time.monotonic()."""
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining
