"""How decisions are shown, and that every change is noted with its reason."""

from __future__ import annotations

import logging

import pytest

from bench.controller_machines import KINDS, MACHINES
from bench.drafting_simulation import Simulation
from gateway.control.controllers import Controllers
from gateway.control.decision_board import DecisionBoard
from gateway.policy.tenants import DRAFT_MODEL, Tenant, Tenants
from slipstream.logs import fields_of

AUTO = Tenant(name="t", anonymous=True, proposers=("auto",), num_draft_tokens=8)


@pytest.fixture
def board() -> DecisionBoard:
    """After a simulated while."""
    simulation = Simulation(MACHINES["gpu-8b"], AUTO, [KINDS["chat"]], 2)
    board = DecisionBoard(lambda: simulation.controllers.all)
    simulation.controllers = Controllers(Tenants([AUTO]), lambda: (DRAFT_MODEL,), board.note_change)
    simulation.streams = [simulation._begin() for _ in range(2)]
    for _ in range(200):
        simulation.step()
    return board


def test_every_way_is_shown_with_its_promise_and_the_present_one_with_its_reason(board: DecisionBoard) -> None:
    samples = {family.name: family.samples for family in board.collect()}
    (present,) = samples["slipstream_policy_draft_tokens"]
    assert (present.labels["tenant"], present.labels["temperature"]) == ("t", "greedy")
    assert present.labels["reason"] in ("best", "held")
    assert present.labels["way"] in ("draft_model", "ngram+draft_model")
    promised = {sample.labels["way"]: sample.value for sample in samples["slipstream_policy_goodput"]}
    assert set(promised) == {"none", "ngram", "draft_model", "ngram+draft_model"}
    assert promised[present.labels["way"]] > promised["none"] > 0
    (price,) = samples["slipstream_policy_drafting_price"]
    assert 0 <= price.value < 0.5
    shares = samples["slipstream_policy_acceptance"] + samples["slipstream_policy_served"]
    assert all(0 <= sample.value <= 1 for sample in shares)
    assert {sample.labels["proposer"] for sample in shares} == {"ngram", "draft_model"}


def test_a_change_is_counted_and_written_to_the_audit_log_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.audit")
    board = DecisionBoard(list)
    controllers = Controllers(Tenants([AUTO]), lambda: (DRAFT_MODEL,), board.note_change)
    simulation = Simulation(MACHINES["gpu-8b"], AUTO, [KINDS["chat"]], 2)
    simulation.controllers = controllers
    simulation.streams = [simulation._begin() for _ in range(2)]
    for _ in range(200):
        simulation.step()
    assert board.changes.value("t", "best") >= 1
    line = fields_of(caplog.records[0])
    assert caplog.records[0].getMessage() == "drafting changed"
    assert (line["tenant"], line["temperature"], line["reason"]) == ("t", "greedy", "best")
    assert str(line["drafting"]).startswith("ngram K=8 F=0 -> ")
    assert "none" in str(line["promised"])
