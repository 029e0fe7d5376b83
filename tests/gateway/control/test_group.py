"""What a group is decided under: its own requests, and what runs beside them."""

from __future__ import annotations

from typing import cast

from gateway.control.group import Group, Kind, Member, load_beside
from gateway.policy.tenants import Tenant

AUTO = Tenant(name="t", anonymous=True, proposers=("auto",), num_draft_tokens=8)


def group_of(num_members: int, temperature: str = "greedy") -> Group:
    group = Group(Kind("t", temperature), AUTO)
    group.members = {cast("Member", object()): None for _ in range(num_members)}
    return group


def test_a_request_that_runs_alone_is_lone() -> None:
    group = group_of(1)
    assert load_beside(group, [group], 1, {}).is_lone


def test_the_first_step_of_a_burst_is_not_one_of_a_lone_sequence() -> None:
    group, beside = group_of(3), group_of(1, "high")
    load = load_beside(group, [group, beside], 1, {})
    assert not load.is_lone
    assert (load.num_running, load.num_sequences) == (4, 3)


def test_what_other_gateways_run_counts_as_plain_sequences() -> None:
    group = group_of(2)
    load = load_beside(group, [group], 6, {})
    assert (load.num_sequences, load.other_rows, load.other_tokens) == (2, 4, 4)
