"""A controller for each verifier, and the policies that all follow."""

from __future__ import annotations

from gateway.control.controllers import MAX_IDLE, Controllers
from gateway.policy.tenants import Tenant, Tenants
from slipstream.request import SamplingParams, SequenceRequest

AUTO = Tenant(name="auto", anonymous=True, proposers=("auto",))
LISTED = Tenant(name="listed", key_sha256=("a" * 64,), proposers=("draft_model", "ngram"))


def test_each_verifier_has_its_own() -> None:
    controllers = Controllers(Tenants([AUTO]), lambda: ())
    assert controllers.of("a:1") is controllers.of("a:1")
    assert controllers.of("a:1") is not controllers.of("b:1")
    assert [controller.address for controller in controllers.all] == ["a:1", "b:1"]


def test_verifiers_that_came_and_went_are_forgotten_but_not_one_that_something_runs_on() -> None:
    controllers = Controllers(Tenants([AUTO]), lambda: ())
    running = SequenceRequest(
        sequence_id=1, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(), tenant=AUTO.name
    )
    controllers.steering(running, lambda drafting: None).open("first:1")
    for i in range(3 * MAX_IDLE):
        controllers.of(f"pod-{i}:1")
    addresses = [controller.address for controller in controllers.all]
    assert len(addresses) <= MAX_IDLE + 2
    assert {"first:1", f"pod-{3 * MAX_IDLE - 1}:1"} <= set(addresses)


def test_what_was_learnt_of_a_removed_tenant_is_forgotten_once_nothing_of_it_runs() -> None:
    controllers = Controllers(Tenants([AUTO, LISTED]), lambda: ())
    controllers.begin(LISTED)
    request = SequenceRequest(
        sequence_id=1, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(), tenant=LISTED.name
    )
    steering = controllers.steering(request, lambda drafting: None)
    steering.open("a:1")
    controllers.take_up(Tenants([AUTO]))
    assert controllers.of("a:1").groups
    steering.close()
    controllers.take_up(Tenants([AUTO]))
    assert not controllers.of("a:1").groups


def test_who_may_draft_is_whom_the_policy_allows_and_for_auto_whom_a_drafter_offers() -> None:
    offered: set[str] = set()
    controllers = Controllers(Tenants([AUTO, LISTED]), lambda: offered)
    assert controllers.begin(AUTO) == ("ngram",)
    offered.add("draft_model")
    assert controllers.begin(AUTO) == ("ngram", "draft_model")
    assert controllers.begin(LISTED) == ("draft_model", "ngram")
