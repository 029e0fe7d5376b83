"""The audit log: one line for each change of a tenant's policy or of how it is drafted. Never a key, hashed or not."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Final

from gateway.control.decision import NOBODY, Decision, way_name
from gateway.control.group import Kind
from gateway.policy.tenants import Tenant, Tenants
from slipstream import logs

_LOG = logging.getLogger("gateway.audit")

_NO_TENANTS: Final = Tenants(())


def log_policies(source: str, new: Tenants, old: Tenants = _NO_TENANTS) -> None:
    """`source`: where the new policies come from."""
    before, after = ({tenant.name: tenant for tenant in tenants.all} for tenants in (old, new))
    for name in sorted(before | after):
        if name not in before:
            _LOG.info("policy added", extra=logs.fields(tenant=name, source=source, **_policy(after[name])))
        elif name not in after:
            _LOG.info("policy removed", extra=logs.fields(tenant=name, source=source))
        elif before[name] != after[name]:
            changes = _changes(before[name], after[name])
            _LOG.info("policy changed", extra=logs.fields(tenant=name, source=source, **changes))


def log_rejected(source: str, error: ValueError) -> None:
    """A file that cannot be used changes nothing."""
    _LOG.error("policies kept", extra=logs.fields(source=source, reason=str(error)))


def log_decision(address: str, kind: Kind, before: Decision, now: Decision) -> None:
    """`address`: of the verifier."""
    promised = {way_name(option.way): round(option.goodput, 1) for option in now.options}
    told = logs.fields(
        verifier=address,
        tenant=kind.tenant,
        temperature=kind.temperature,
        drafting=f"{_drafting(before)} -> {_drafting(now)}",
        reason=str(now.reason),
        promised=promised,  # tokens a second, by who would draft
    )
    _LOG.info("drafting changed", extra=told)


def _drafting(decision: Decision) -> str:
    if decision.is_off:
        return NOBODY
    return f"{way_name(decision.way)} K={decision.num_draft_tokens} F={decision.fan_out}"


def _policy(tenant: Tenant) -> dict[str, str]:
    return {field.name: _shown(tenant, field.name) for field in fields(tenant) if field.name != "name"}


def _changes(before: Tenant, after: Tenant) -> dict[str, str]:
    changed = [field.name for field in fields(Tenant) if getattr(before, field.name) != getattr(after, field.name)]
    return {name: f"{_shown(before, name)} -> {_shown(after, name)}" for name in changed}


def _shown(tenant: Tenant, field: str) -> str:
    value = getattr(tenant, field)
    if field == "key_sha256":
        return f"{len(value)} keys"
    return ",".join(value) if isinstance(value, tuple) else str(value)
