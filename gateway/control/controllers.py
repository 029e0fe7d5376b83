"""The controllers of all verifiers, and the policies that they follow. Knows tenants; no peer, no request's life."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

from gateway.control.controller import Controller
from gateway.control.decision import Decision, usable
from gateway.control.drafting import Drafting
from gateway.control.group import Group
from gateway.control.steering import Steering
from gateway.policy.tenants import Tenant, Tenants
from slipstream.request import SequenceRequest

MAX_IDLE: Final = 32  # controllers that nothing runs under are remembered, the newest ones

OnDecision = Callable[[str, Group, Decision], None]  # verifier's address, group, what was decided before


class Controllers:
    """Each verifier has its own: load, step times and what drafts are worth there are its own."""

    def __init__(
        self,
        tenants: Tenants,
        offered: Callable[[], Collection[str]],  # proposers of the drafters that are known
        on_decision: OnDecision = lambda address, group, before: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tenants = tenants
        self._offered = offered
        self._on_decision = on_decision
        self._clock = clock
        self._by_address: dict[str, Controller] = {}
        self._last_policies: dict[str, Tenant] = {}  # by name, of tenants that are in the file no more

    @property
    def all(self) -> list[Controller]:
        return list(self._by_address.values())

    def of(self, address: str) -> Controller:
        if address not in self._by_address:
            self._forget_idle()
            self._by_address[address] = Controller(
                address, self._offered, lambda group, before: self._on_decision(address, group, before), self._clock
            )
        return self._by_address[address]

    def begin(self, tenant: Tenant) -> tuple[str, ...]:
        """A request of this tenant begins: who may draft for it. Its policy holds though the tenant be removed."""
        self._last_policies[tenant.name] = tenant
        return usable(tenant, self._offered())

    def steering(self, request: SequenceRequest, redraft: Callable[[Drafting], None]) -> Steering:
        return Steering(request, lambda: self._policy(request.tenant), self.of, redraft)

    def take_up(self, tenants: Tenants) -> None:
        """New policies, for running requests too."""
        self._tenants = tenants
        names = {tenant.name for tenant in tenants.all}
        for controller in self.all:
            controller.forget_groups(besides=names)
        groups = [group for controller in self.all for group in controller.groups.values()]
        for member in [member for group in groups for member in group.members]:
            member.take_up_policy()

    def _forget_idle(self) -> None:
        """Verifiers that names in DNS led to come and go under ever new addresses."""
        idle = [controller.address for controller in self.all if controller.is_idle]
        for address in idle[: max(0, len(idle) - MAX_IDLE)]:
            del self._by_address[address]

    def _policy(self, name: str) -> Tenant:
        return self._tenants.named(name) or self._last_policies[name]
