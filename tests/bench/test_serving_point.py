"""Figures of a point, from counts that are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.clients import Felt
from bench.scraped import Labels, Scraped
from bench.serving_point import Policy, conditional_acceptance, make_point
from gateway.policy.tenants import load_tenants
from launcher.figures import Figures

POLICY = Policy(proposer="draft_model", num_draft_tokens=4, fan_out=8)


def counted(labels: Labels = (), /, **values: float) -> Scraped:
    return Scraped({(f"slipstream_{name}", labels): value for name, value in values.items()})


def test_a_policy_is_a_tenant_that_the_gateway_takes(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    policies = (POLICY, Policy(proposer="none"))
    file.write_text(yaml.safe_dump({"tenants": [policy.as_tenant for policy in policies]}))
    tenants = load_tenants(file).all
    assert [(t.name, t.fan_out) for t in tenants] == [(policy.name, policy.fan_out) for policy in policies]


def test_counts_of_other_tenants_do_not_enter() -> None:
    ours, others = (("tenant", POLICY.name),), (("tenant", "none"),)
    verifier = counted(ours, passes_total=10, committed_tokens_total=25, tree_ready_total=8, tree_hits_total=6)
    verifier = Scraped({**verifier.values, **counted(others, passes_total=99, tree_ready_total=99).values})
    drafted = counted(ours, spec_decode_num_drafts_total=5, spec_decode_num_accepted_tokens_total=15)
    at_first = counted((("position", "0"), *ours), spec_decode_num_accepted_tokens_per_pos_total=4)
    services = {"verifier": Scraped({**verifier.values, **drafted.values, **at_first.values}), "gateway": Scraped({})}
    felt = Felt(seconds=2.0, num_tokens=50, num_decoded=40, decode_seconds=1.0)
    point = make_point(POLICY, felt, services, temperature=0.0, streams=1, overlaps=True)
    assert (point.tokens_per_second, point.decode_tokens_per_second, point.committed_per_pass) == (25.0, 40.0, 2.5)
    assert point.acceptance_per_position == [0.8]
    assert (point.acceptance_length, point.hit_rate) == (4.0, 0.75)
    assert (point.name, point.draft_step_ms) == ("draft_model-fan8-ratio T=0 x1", 0.0)


def test_acceptance_at_a_position_does_not_fall_because_drafts_end_before_it() -> None:
    """Half of the drafts have one token only; of those that reach each position four in five stand."""
    figures = Figures(num_drafts=100, accepted_per_position=[80, 32], submitted_per_position=[100, 50])
    assert conditional_acceptance(figures) == pytest.approx([0.8, 0.8])


def test_without_drafts_there_is_no_acceptance() -> None:
    assert conditional_acceptance(Figures()) == []


def test_a_round_trip_that_no_gateway_sees_is_the_verifiers_less_what_the_drafter_computed() -> None:
    trip = counted((("proposer", "draft_model"),), draft_round_trip_seconds_sum=0.06, draft_round_trip_seconds_count=20)
    drafting = counted((("tenant", POLICY.name),), draft_seconds_sum=0.02, draft_seconds_count=10)
    services = {"verifier": trip, "gateway": drafting}
    point = make_point(POLICY, Felt(), services, temperature=0.0, streams=1, overlaps=True)
    assert point.round_trip_ms == pytest.approx(1.0)
