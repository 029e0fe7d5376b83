"""How far a tenant may go beyond its share of the places. Knows tenants and counts; knows no queue and no verifier."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from gateway.policy.tenants import Tenant

MOST_SLOWDOWN: Final = 1.2  # of a step, by places beyond the share


class Capacity(Protocol):
    """What all verifiers together can do."""

    @property
    def num_seqs(self) -> int:
        """Sequences that run at one time; 0 if unknown."""

    def slowdown(self, many: int, few: int) -> float:
        """How many times as long a step takes with so many sequences in all as with so few."""


class UnknownCapacity:
    """Before anything is known or measured."""

    num_seqs = 0

    def slowdown(self, many: int, few: int) -> float:
        return 1.0


def fair_share(tenant: Tenant, others: Collection[Tenant], num_places: int) -> int:
    """Places that are its own, at least one."""
    return max(1, num_places * tenant.share // (tenant.share + sum(other.share for other in others)))


def may_hold(number: int, tenant: Tenant, others: dict[Tenant, int], num_places: int, capacity: Capacity) -> bool:
    """Whether the tenant may have so many places beside `others`, who were here of late, and what they hold now.

    It may use places that others leave free for as long as that hardly slows down what they run. Tenants of lower
    priority do not count.
    """
    peers = [other for other in others if other.priority >= tenant.priority]
    share = fair_share(tenant, peers, num_places)
    if number <= share or not peers:
        return True
    beside = sum(others.values())
    return capacity.slowdown(beside + number, beside + share) <= MOST_SLOWDOWN
