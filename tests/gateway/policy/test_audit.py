"""One line for each change of a policy."""

from __future__ import annotations

import logging

import pytest

from gateway.policy.audit import log_policies, log_rejected
from gateway.policy.tenants import Tenant, Tenants
from slipstream.logs import fields_of

HASH = "a" * 64


def tenant(name: str, **fields: object) -> Tenant:
    return Tenant(**{"name": name, "anonymous": True, **fields})  # type: ignore[arg-type]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "gateway.audit")
    return caplog


def test_what_serves_at_the_start_is_told_whole_without_keys(told: pytest.LogCaptureFixture) -> None:
    log_policies("t.yaml", Tenants([tenant("acme", anonymous=False, key_sha256=(HASH,), proposers=("none",))]))
    (record,) = told.records
    line = fields_of(record)
    assert record.getMessage() == "policy added"
    assert (line["tenant"], line["source"], line["key_sha256"], line["proposers"]) == (
        "acme",
        "t.yaml",
        "1 keys",
        "none",
    )
    assert HASH not in str(line)


def test_a_reload_tells_what_came_went_and_changed_and_nothing_else(told: pytest.LogCaptureFixture) -> None:
    same = tenant("same", anonymous=False, key_sha256=(HASH,))
    old = Tenants(
        [tenant("changed", num_draft_tokens=4), tenant("gone", anonymous=False, key_sha256=("b" * 64,)), same]
    )
    new = Tenants([tenant("changed", num_draft_tokens=2), tenant("new", anonymous=False, key_sha256=("c" * 64,)), same])
    log_policies("t.yaml", new, old)
    lines = {str(fields_of(record)["tenant"]): record for record in told.records}
    assert {name: record.getMessage() for name, record in lines.items()} == {
        "changed": "policy changed",
        "gone": "policy removed",
        "new": "policy added",
    }
    assert fields_of(lines["changed"]) == {"tenant": "changed", "source": "t.yaml", "num_draft_tokens": "4 -> 2"}


def test_a_file_that_cannot_be_used_is_told_too(told: pytest.LogCaptureFixture) -> None:
    log_rejected("t.yaml", ValueError("t.yaml: is not YAML"))
    (record,) = told.records
    assert (record.getMessage(), fields_of(record)["reason"]) == ("policies kept", "t.yaml: is not YAML")
