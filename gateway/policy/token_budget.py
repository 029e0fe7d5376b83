"""Tokens per minute of each tenant: a bucket that fills steadily. Knows tenants and a clock; knows no request.

A request may begin while its tenant's bucket holds anything; what it then uses, prompt and output, is taken out as it
is used, if need be below zero. So no request is ever too large for its tenant's limit, in the long run the limit holds
exactly, and what a burst overdraws is waited for before the next request begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.policy.tenants import Tenant
from slipstream.errors import Exhausted

_MINUTE: Final = 60.0
_LEAST_WAIT: Final = 0.1  # seconds


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class TokenBudgets:
    """A bucket holds one minute's tokens and is full at first. A changed limit applies from the next look on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def check(self, tenant: Tenant) -> None:
        """Raises Exhausted while the tenant has used more than its limit allows."""
        if not tenant.tokens_per_minute:
            return
        missing = 1 - self._filled(tenant).tokens
        if missing > 0:
            seconds = missing * _MINUTE / tenant.tokens_per_minute
            raise Exhausted(
                f"tenant {tenant.name!r} has used its {tenant.tokens_per_minute} tokens per minute; "
                f"try again in {seconds:.1f} s",
                retry_after_seconds=max(_LEAST_WAIT, seconds),
            )

    def charge(self, tenant: Tenant, num_tokens: int) -> None:
        if tenant.tokens_per_minute:
            self._filled(tenant).tokens -= num_tokens

    def _filled(self, tenant: Tenant) -> _Bucket:
        limit, now = tenant.tokens_per_minute, self._clock()
        bucket = self._buckets.setdefault(tenant.name, _Bucket(limit, now))
        bucket.tokens = min(limit, bucket.tokens + (now - bucket.filled_at) * limit / _MINUTE)
        bucket.filled_at = now
        return bucket
