"""How far a tenant goes beyond its share while others are there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gateway.fair_share import MOST_SLOWDOWN, UnknownCapacity, fair_share, may_hold
from gateway.policy.tenants import Tenant

LOUD = Tenant(name="loud", anonymous=True)
QUIET = Tenant(name="quiet", anonymous=True)
BIG = Tenant(name="big", anonymous=True, share=3)


@dataclass(frozen=True)
class Costs:
    """A step takes `fixed` and as much again for each sequence as `each` says."""

    fixed: float
    each: float
    num_seqs: int = 8

    def slowdown(self, many: int, few: int) -> float:
        return (self.fixed + many * self.each) / (self.fixed + few * self.each)


def most(tenant: Tenant, others: dict[Tenant, int], capacity: Costs | UnknownCapacity, num_places: int = 8) -> int:
    return max(number for number in range(1, 9) if may_hold(number, tenant, others, num_places, capacity))


def test_a_share_is_by_weight_and_at_least_one_place() -> None:
    assert fair_share(LOUD, [], 8) == 8
    assert fair_share(LOUD, [QUIET], 8) == 4
    assert fair_share(LOUD, [BIG], 8) == 2
    assert fair_share(LOUD, [replace(QUIET, name=str(number)) for number in range(20)], 8) == 1


def test_alone_it_has_all_places_whatever_they_cost() -> None:
    assert most(LOUD, {}, Costs(0.0, 1.0)) == 8


def test_where_more_sequences_cost_nothing_free_places_are_lent() -> None:
    assert most(LOUD, {QUIET: 2}, Costs(1.0, 0.0)) == 8


def test_where_each_sequence_costs_as_much_as_the_others_it_is_held_to_about_its_share() -> None:
    costs = Costs(0.0, 1.0)
    assert most(LOUD, {QUIET: 2}, costs) == 5  # 7 in all are no more than MOST_SLOWDOWN times 6
    assert costs.slowdown(2 + 5, 2 + 4) <= MOST_SLOWDOWN < costs.slowdown(2 + 6, 2 + 4)


def test_before_anything_is_measured_free_places_are_lent() -> None:
    assert most(LOUD, {QUIET: 2}, UnknownCapacity()) == 8


@pytest.mark.parametrize(("priority", "expected"), [(1, 8), (0, 5)])
def test_who_has_a_lower_priority_holds_nobody_back(priority: int, expected: int) -> None:
    assert most(replace(LOUD, priority=priority), {QUIET: 2}, Costs(0.0, 1.0)) == expected
