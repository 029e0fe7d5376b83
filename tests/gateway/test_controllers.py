"""A controller for each verifier, and the policies that all follow."""

from __future__ import annotations

from gateway.controllers import Controllers
from gateway.tenants import Tenant, Tenants

AUTO = Tenant(name="auto", anonymous=True, proposers=("auto",))
LISTED = Tenant(name="listed", key_sha256=("a" * 64,), proposers=("draft_model", "ngram"))


def test_each_verifier_has_its_own() -> None:
    controllers = Controllers(Tenants([AUTO]), lambda: ())
    assert controllers.of("a:1") is controllers.of("a:1")
    assert controllers.of("a:1") is not controllers.of("b:1")
    assert [controller.address for controller in controllers.all] == ["a:1", "b:1"]


def test_who_may_draft_is_whom_the_policy_allows_and_for_auto_whom_a_drafter_offers() -> None:
    offered: set[str] = set()
    controllers = Controllers(Tenants([AUTO, LISTED]), lambda: offered)
    assert controllers.begin(AUTO) == ("ngram",)
    offered.add("draft_model")
    assert controllers.begin(AUTO) == ("ngram", "draft_model")
    assert controllers.begin(LISTED) == ("draft_model", "ngram")
