"""Whose call it is, and until when."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.calls import deadline_of, tenant_of, traced
from gateway.completion import Completion
from gateway.gateway import Gateway
from gateway.policy.tenants import Tenant, Tenants
from slipstream.errors import Unauthenticated

GATEWAY = cast(Gateway, SimpleNamespace(tenants=Tenants([Tenant(name="all", anonymous=True)])))


def context(metadata: Any = (), remaining: float | None = None) -> Any:
    return SimpleNamespace(invocation_metadata=lambda: metadata, time_remaining=lambda: remaining)


@pytest.mark.parametrize("metadata", [None, (), (("other", "x"),)])
def test_a_call_without_a_key_is_anonymous(metadata: Any) -> None:
    assert tenant_of(GATEWAY, context(metadata)).name == "all"


def test_a_key_that_nobody_has_is_refused() -> None:
    with pytest.raises(Unauthenticated):
        tenant_of(GATEWAY, context((("authorization", "Bearer x"),)))


def test_a_deadline_is_a_moment() -> None:
    assert deadline_of(context()) is None
    before = time.monotonic()
    found = deadline_of(context(remaining=5.0))
    assert found is not None
    assert before + 5 <= found <= time.monotonic() + 5


@pytest.mark.parametrize(("metadata", "expected"), [((), ""), ((("traceparent", "00-a-b-01"),), "00-a-b-01")])
def test_a_callers_trace_context_comes_along(metadata: Any, expected: str) -> None:
    assert traced(Completion(prompt="x"), context(metadata)).traceparent == expected
