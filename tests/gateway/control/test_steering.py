"""One request's side of the controller: what it tells, what it takes up, and what it never sees."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

import pytest

from gateway.control import controller as controller_module
from gateway.control.controller import Controller
from gateway.control.controllers import Controllers
from gateway.control.decision import Known
from gateway.control.drafting import Drafting
from gateway.control.evidence import Asked, Evidence, Trial
from gateway.control.group import GATED, Kind
from gateway.control.steering import OWN_PASSES, Steering
from gateway.policy.tenants import DRAFT_MODEL, Tenant, Tenants
from slipstream.exchange import Commit, Draft, StepReport
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode

ADDRESS = "verifier:1"
AUTO = Tenant(name="t", anonymous=True, proposers=("auto",), num_draft_tokens=8)
LISTED = Tenant(name="t", anonymous=True, proposers=("draft_model", "ngram"), num_draft_tokens=4, fan_out=3)
FLAT = (0.02, 0.02)  # seconds of a step of 1 and of 512 tokens


def request(**changes: Any) -> SequenceRequest:
    asked: Mapping[str, Any] = {
        "sequence_id": 1,
        "token_ids": (1, 2),
        "num_prompt_tokens": 2,
        "sampling": SamplingParams(temperature=0.0),
        "proposers": ("ngram", "draft_model"),
        "tenant": "t",
    }
    return SequenceRequest(**(asked | changes))


class Steered:
    def __init__(
        self, policy: Tenant = AUTO, step_seconds: tuple[float, float] = FLAT, controllers: Any = None, **changes: Any
    ) -> None:
        self.controllers = controllers or Controllers(Tenants([policy]), lambda: (DRAFT_MODEL,))
        for num_tokens, seconds in zip((1, 512), step_seconds, strict=True):
            self.controller.step_times.note(num_tokens, seconds)
        self.told: list[Drafting] = []
        self.steering: Steering = self.controllers.steering(request(**changes), self.told.append)
        self.opened = self.steering.open(ADDRESS)

    @property
    def controller(self) -> Controller:
        controller: Controller = self.controllers.of(ADDRESS)
        return controller

    @property
    def drafting(self) -> Drafting:
        return self.told[-1] if self.told else self.opened

    def passes(self, count: int, num_accepted: int, **fields: Any) -> None:
        """Each with four draft tokens of whoever drafts first, in a step whose time says nothing new."""
        for _ in range(count):
            drafted = {"num_draft_tokens": 4, "proposer": self.drafting.way[-1]} if self.drafting.way else {}
            accepted = num_accepted if drafted else 0
            commit = Commit(1, 9, (5,) * (accepted + 1), accepted, hit=bool(drafted), **(drafted | fields))
            self.steering.note_commit(commit, StepReport(num_running=1))


def test_a_fixed_policy_opens_as_it_says_and_never_changes() -> None:
    steered = Steered(LISTED)
    assert steered.opened == Drafting(("draft_model", "ngram"), 4, 3, 50_000)
    steered.passes(100, 0)
    assert steered.told == []


def test_where_only_n_grams_draft_nothing_is_waited_for() -> None:
    opened = Steered(replace(LISTED, proposers=("ngram",)), proposers=("ngram",)).opened
    assert (opened.way, opened.fan_out, opened.max_wait_us) == (("ngram",), 0, 0)


def test_a_request_that_accepts_nothing_is_drafted_less_than_its_tenants_others() -> None:
    good = Steered(step_seconds=(0.02, 0.6))
    good.passes(400, 4)
    bad = Steered(step_seconds=(0.02, 0.6), controllers=good.controllers)
    first = bad.opened
    bad.passes(12 * OWN_PASSES, 0)
    assert first.way
    assert bad.drafting.num_draft_tokens < first.num_draft_tokens or "draft_model" not in bad.drafting.way


def test_what_a_request_showed_fades_while_nobody_drafts_for_it() -> None:
    tenant = Evidence()
    own = Evidence(tenant)
    for _ in range(100):
        own.note_pass(Commit(1, 9, (5,), 0, 4, "draft_model"), Asked(("draft_model",), 4))
    low = own.acceptance("draft_model").rate(0)
    for _ in range(300):
        own.fade("draft_model")
    assert own.acceptance("draft_model").rate(0) > 2 * low


def test_a_changed_policy_is_taken_up_by_running_requests_within_what_they_were_opened_with() -> None:
    steered = Steered(LISTED)
    steered.controllers.take_up(Tenants([replace(LISTED, num_draft_tokens=2, fan_out=1, max_wait_ms=5.0)]))
    assert steered.drafting == Drafting(("draft_model", "ngram"), 2, 1, 5000)
    steered.controllers.take_up(Tenants([replace(LISTED, max_wait_ms=7.0)]))
    assert steered.drafting == Drafting(("draft_model", "ngram"), 4, 3, 7000)
    steered.controllers.take_up(Tenants([replace(LISTED, proposers=("ngram",))]))
    assert (steered.drafting.way, steered.drafting.max_wait_us) == (("ngram",), 0)
    steered.controllers.take_up(Tenants([replace(LISTED, proposers=("none",))]))
    assert (steered.drafting.way, steered.drafting.num_draft_tokens) == ((), 0)


def test_a_lowered_gate_on_temperature_ends_drafting_for_running_requests_and_a_raised_one_brings_it_back() -> None:
    steered = Steered(LISTED, sampling=SamplingParams(temperature=1.2))
    steered.controllers.take_up(Tenants([replace(LISTED, off_above_temperature=1.0)]))
    assert steered.drafting.way == ()
    assert list(steered.controller.groups[Kind("t", GATED)].members) == [steered.steering]
    steered.controllers.take_up(Tenants([LISTED]))
    assert steered.drafting.way == ("draft_model", "ngram")


def test_a_removed_tenants_requests_go_on_as_they_began() -> None:
    controllers = Controllers(Tenants([LISTED]), lambda: (DRAFT_MODEL,))
    controllers.begin(LISTED)
    steered = Steered(LISTED, controllers=controllers)
    controllers.take_up(Tenants([Tenant(name="other", anonymous=True)]))
    assert steered.told == []


def test_a_request_that_has_ended_is_told_nothing() -> None:
    steered = Steered(LISTED)
    steered.steering.close()
    steered.controllers.take_up(Tenants([replace(LISTED, num_draft_tokens=1)]))
    steered.passes(3, 0)
    assert steered.told == []


@pytest.mark.parametrize(
    ("changes", "tells"),
    [
        ({"sampling": SamplingParams(temperature=1.0)}, True),
        ({"sampling": SamplingParams(temperature=1.0), "shares_seed": True}, False),
        ({"sampling": SamplingParams(temperature=1.0), "shares_seed": True, "mode": VerificationMode.COUPLED}, True),
        ({"shares_seed": True}, True),
    ],
    ids=["seed of its own", "caller's seed", "coupled", "greedy"],
)
def test_requests_that_may_share_noise_do_not_steer_one_another_in_ratio_mode(
    changes: dict[str, Any], tells: bool
) -> None:
    steered = Steered(AUTO, **changes)
    steered.steering.note_trial(Trial(8, 8, is_long=True))
    steered.passes(20, 4)
    (group,) = steered.controller.groups.values()
    evidence = group.evidence
    assert (evidence.acceptance("ngram").drafted.trials > 0) is tells
    assert (evidence.acceptance("draft_model").drafted.trials > 0) is tells


def test_nothing_that_a_decision_is_made_from_can_hold_a_draft() -> None:
    """What enters: commits, step reports, trials, times and policies. A draft has no way in."""
    allowed = {Commit, StepReport, Trial, Asked, Tenant, Evidence, str, int, bool, float, type(None)}
    entries = {
        Steering: ("note_commit", "note_trial", "note_drafts", "take_up_policy", "open", "close"),
        Evidence: ("note_pass", "note_trial", "fade", "fade_to"),
    }
    for owner, names in entries.items():
        for name in names:
            method = getattr(owner, name)
            hints = {key: hint for key, hint in get_type_hints(method).items() if key != "return"}
            assert all(hint in allowed or "Collection[str]" in str(hint) for hint in hints.values()), (name, hints)
    assert Draft not in get_type_hints(Known).values()
    assert "Draft" not in {name for name, _ in inspect.getmembers(controller_module)}
