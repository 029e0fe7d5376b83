"""Whose turn it is among those who wait: by priority, then by share. Knows tenants and counts; no clock, no model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from gateway.policy.tenants import Tenant


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """One request that waits."""

    tenant: Tenant
    place: asyncio.Future[None]
    num_places: int = 1  # it is given all of them or none


MayHold = Callable[[Tenant, int], bool]  # whether a tenant may run so many requests at one time


def within_own_limit(tenant: Tenant, number: int) -> bool:
    return number <= tenant.max_running


class Line:
    """One queue for each tenant.

    Of the highest priority that waits, the tenant goes first that runs least for its share; among equals the one whose
    last turn is longest ago. So a tenant's flood is in its own way only, and long requests count for as long as they
    run. Low priorities wait for as long as higher ones want every place.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Ticket]] = {}  # by tenant's name, none of them empty
        self._last_turn: dict[str, int] = {}
        self._turns = count(1)

    def __len__(self) -> int:
        return sum(ticket.num_places for queue in self._queues.values() for ticket in queue)

    def num_waiting(self, tenant: Tenant) -> int:
        """Places that its tickets are for."""
        return sum(ticket.num_places for ticket in self._queues.get(tenant.name, ()))

    def add(self, ticket: Ticket) -> None:
        self._queues.setdefault(ticket.tenant.name, deque()).append(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Of one that may have been taken already."""
        queue = self._queues.get(ticket.tenant.name, deque())
        if ticket in queue:
            queue.remove(ticket)
            self._forget_if_empty(ticket.tenant)

    @property
    def tenants(self) -> list[Tenant]:
        """Those that wait."""
        return [queue[0].tenant for queue in self._queues.values()]

    def take_next(
        self, running: Mapping[str, int], room: int = 1, may_hold: MayHold = within_own_limit
    ) -> Ticket | None:
        """The oldest ticket of the tenant whose turn it is; None if all that wait run as many as they may.

        None too if that ticket needs more than the room: nobody overtakes it, or it might wait for ever.
        """
        heads = [queue[0] for queue in self._queues.values()]
        allowed = [
            head.tenant for head in heads if may_hold(head.tenant, running.get(head.tenant.name, 0) + head.num_places)
        ]
        if not allowed:
            return None
        tenant = min(allowed, key=lambda one: self._rank(one, running.get(one.name, 0)))
        if self._queues[tenant.name][0].num_places > room:
            return None
        self._last_turn[tenant.name] = next(self._turns)
        ticket = self._queues[tenant.name].popleft()
        self._forget_if_empty(tenant)
        return ticket

    def may_displace(self, tenant: Tenant) -> bool:
        """Whether somebody has more of the line than the newcomer would, so that a full line has room for it."""
        return bool(self._queues) and self._greed(self._greediest(), 0) > self._greed(tenant, 1)

    def take_last(self) -> Ticket:
        """The newest ticket of whoever has most of the line for its share, the lowest priority first."""
        tenant = self._greediest()
        ticket = self._queues[tenant.name].pop()
        self._forget_if_empty(tenant)
        return ticket

    def _greediest(self) -> Tenant:
        return max((queue[-1].tenant for queue in self._queues.values()), key=lambda one: self._greed(one, 0))

    def _greed(self, tenant: Tenant, more: int) -> tuple[int, float]:
        return -tenant.priority, (self.num_waiting(tenant) + more) / tenant.share

    def _rank(self, tenant: Tenant, num_running: int) -> tuple[int, float, int]:
        return -tenant.priority, num_running / tenant.share, self._last_turn.get(tenant.name, 0)

    def _forget_if_empty(self, tenant: Tenant) -> None:
        if not self._queues[tenant.name]:
            del self._queues[tenant.name]
