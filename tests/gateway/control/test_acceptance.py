"""Acceptance by position, from decayed counts that are drawn towards what was expected."""

from __future__ import annotations

import pytest

from gateway.control.acceptance import COLD_RATE, Acceptance


def fed(passes: list[tuple[int, int]], parent: Acceptance | None = None, times: int = 1) -> Acceptance:
    acceptance = Acceptance(decay=0.99, weight=4.0, parent=parent)
    for _ in range(times):
        for num_accepted, num_draft_tokens in passes:
            acceptance.add(num_accepted, num_draft_tokens)
    return acceptance


def test_before_anything_was_checked_it_is_what_is_expected() -> None:
    assert Acceptance(decay=0.9, weight=4.0).rates(3) == (COLD_RATE,) * 3


def test_a_position_counts_only_where_all_before_it_stood() -> None:
    acceptance = fed([(0, 3), (2, 3)], times=500)
    first, second, third = acceptance.rates(3)
    assert first == pytest.approx(0.5, abs=0.02)
    assert second == pytest.approx(1.0, abs=0.1)
    assert third == pytest.approx(0.0, abs=0.1)


def test_a_position_that_was_never_reached_is_expected_to_be_as_the_others() -> None:
    acceptance = fed([(1, 1)], times=500)
    assert acceptance.rate(7) == pytest.approx(1.0, abs=0.05)


def test_late_passes_outweigh_early_ones() -> None:
    acceptance = fed([(4, 4)], times=500)
    for _ in range(300):
        acceptance.add(0, 4)
    assert acceptance.rate(0) < 0.1


def test_a_request_begins_where_its_tenant_is_and_goes_its_own_way() -> None:
    tenant = fed([(2, 2)], times=500)
    request = fed([], parent=tenant)
    assert request.rate(0) == pytest.approx(tenant.rate(0))
    for _ in range(100):
        request.add(0, 2)
    assert request.rate(0) < 0.15
    assert tenant.rate(0) > 0.9


def test_what_a_request_showed_fades_while_it_is_not_drafted_for() -> None:
    tenant = fed([(2, 2)], times=500)
    request = fed([(0, 2)], parent=tenant, times=100)
    for _ in range(1000):
        request.fade()
    assert request.rate(0) == pytest.approx(tenant.rate(0), abs=0.01)


def test_the_rate_over_all_drafted_tokens_is_told_too() -> None:
    assert fed([(1, 4), (3, 4)], times=500).drafted.mean(0.0) == pytest.approx(0.5, abs=0.01)
