"""What commits and trials tell about proposers."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.control.evidence import LONG_NGRAM, Asked, Evidence, Trial
from gateway.control.step_times import DraftTimes
from slipstream.exchange import Commit

ASKED = Asked(("draft_model",), 4)


def commit(proposer: str = "draft_model", num_accepted: int = 2, **fields: Any) -> Commit:
    drafted = {"num_draft_tokens": 4} if proposer else {}
    return Commit(1, 10, (5,) * (num_accepted + 1), num_accepted, **drafted, proposer=proposer, **fields)


def after(*commits: Commit, times: int = 400) -> Evidence:
    evidence = Evidence()
    for _ in range(times):
        for one in commits:
            evidence.note_pass(one, ASKED)
    return evidence


def test_hits_late_drafts_and_waits_are_told_apart() -> None:
    evidence = after(commit(hit=True), commit(hit=False, wait_us=8000), commit("", 0, wait_us=4000))
    source = evidence.source("draft_model", 4, DraftTimes())
    assert source.hit == pytest.approx(1 / 3, abs=0.05)
    assert source.late == pytest.approx(1 / 2, abs=0.05)
    assert source.wait_seconds == pytest.approx(0.006, abs=0.0008)
    assert source.wait_tokens == pytest.approx(4, abs=0.4)


def test_a_pass_that_another_proposer_served_first_is_no_miss() -> None:
    evidence = after(commit("ngram", hit=True), commit(hit=True))
    assert evidence.source("draft_model", 4, DraftTimes()).hit > 0.9


def test_a_pass_that_the_verifier_filled_by_itself_is_a_miss() -> None:
    evidence = after(commit("ngram", hit=False))
    assert evidence.source("draft_model", 4, DraftTimes()).hit < 0.1


def test_long_matches_are_scored_apart() -> None:
    evidence = Evidence()
    for _ in range(400):
        evidence.note_trial(Trial(4, 4, is_long=True))
        evidence.note_trial(Trial(4, 0, is_long=False))
        evidence.note_trial(Trial(0, 0, is_long=False))
    short, long = evidence.source("ngram", 4), evidence.source(LONG_NGRAM, 4)
    assert (short.hit, long.hit) == (pytest.approx(2 / 3, abs=0.05), pytest.approx(1 / 3, abs=0.05))
    assert short.acceptance[0] == pytest.approx(0.5, abs=0.05)
    assert long.acceptance[0] > 0.9


def test_a_request_begins_as_its_tenant_is() -> None:
    tenant = after(commit(num_accepted=0, hit=False, wait_us=0))
    request = Evidence(tenant)
    assert request.source("draft_model", 2).hit == tenant.source("draft_model", 2).hit
    assert request.acceptance("draft_model").rate(0) < 0.1
