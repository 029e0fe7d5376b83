"""The controller on a simulated verifier: what it settles on, when it gives up, how it comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.controller_machines import KINDS, MACHINES, MIXED, TextKind
from bench.drafting_simulation import VERIFIER, Simulation
from gateway.control.controller import Controller
from gateway.control.decision import Decision, Reason
from gateway.control.evidence import Asked
from gateway.control.group import Group, Kind
from gateway.policy.tenants import DRAFT_MODEL, Tenant
from slipstream.exchange import Commit, StepReport

AUTO = Tenant(name="t", anonymous=True, proposers=("auto",), num_draft_tokens=8)
GPU = MACHINES["gpu-8b"]
CHAT, COPYING, HOT = KINDS["chat"], KINDS["copying"], KINDS["hot"]
USELESS = replace(HOT, model=0.02, guessed=0.05, long_match=0.0, short_match=0.0)
BUSY = replace(GPU, verify=((1, 5e-3), (512, 5e-3 * 512)))  # every token costs as much as it can give


def simulate(
    kind: TextKind, num_streams: int = 4, policy: Tenant = AUTO, steps: int = 400, busy: bool = False
) -> Simulation:
    simulation = Simulation(BUSY if busy else GPU, policy, [kind], num_streams)
    run(simulation, steps)
    return simulation


def run(simulation: Simulation, steps: int) -> None:
    for _ in range(steps):
        simulation.step()


def group_of(simulation: Simulation) -> Group:
    (group,) = simulation.controllers.of(VERIFIER).groups.values()
    return group


def test_a_model_drafts_chat_and_n_grams_go_first_in_copied_text() -> None:
    assert "draft_model" in group_of(simulate(CHAT)).decision.way
    assert group_of(simulate(COPYING)).decision.way[0] == "ngram"


@pytest.mark.parametrize("num_streams", [1, 8])
def test_it_is_nearly_as_good_as_the_best_fixed_setting(num_streams: int) -> None:
    fixed = [
        Tenant(name="t", anonymous=True, proposers=proposers, num_draft_tokens=k)
        for proposers in (("none",), ("ngram",), ("draft_model",), ("ngram", "draft_model"))
        for k in (4, 8)
    ]
    rates = [simulate(CHAT, num_streams, policy, steps=150).tokens_per_second for policy in fixed]
    controlled = simulate(CHAT, num_streams)
    assert controlled.tokens_per_second > 0.9 * max(rates)
    assert controlled.tokens_per_second > 1.5 * min(rates)


def test_at_high_load_speculation_costs_no_throughput() -> None:
    plain = replace(AUTO, proposers=("none",))
    controlled, bare = simulate(CHAT, 64, busy=True, steps=60), simulate(CHAT, 64, plain, busy=True, steps=60)
    run_from = controlled.tokens, controlled.seconds
    run(controlled, 100)
    rate = (controlled.tokens - run_from[0]) / (controlled.seconds - run_from[1])
    assert group_of(controlled).decision.reason is Reason.NONE_PAYS
    assert rate > 0.97 * bare.tokens_per_second


def share_elsewhere(simulation: Simulation, steps: int) -> float:
    """Of sequences and steps, those that the model drafts for."""
    drafted = 0
    for _ in range(steps):
        simulation.step()
        drafted += sum(bool(one.drafting and DRAFT_MODEL in one.drafting.way) for one in simulation.streams)
    return drafted / (steps * len(simulation.streams))


@pytest.mark.parametrize(("machine", "low", "high"), [("cpu-shared", 0.0, 0.1), ("cpu-own", 0.6, 1.0)])
def test_a_model_drafts_for_a_batch_unless_it_takes_its_time_from_the_pass(
    machine: str, low: float, high: float
) -> None:
    simulation = Simulation(MACHINES[machine], AUTO, [CHAT], 4)
    run(simulation, 300)
    assert low <= share_elsewhere(simulation, 300) <= high


def test_the_price_of_drafting_is_found_on_shared_cores() -> None:
    machine = MACHINES["cpu-shared"]
    simulation = Simulation(machine, AUTO, MIXED, 4)
    run(simulation, 600)
    price = simulation.controllers.of(VERIFIER).step_times.price(4)
    assert price.mean == pytest.approx(machine.contention, rel=0.25)


def test_groups_that_all_draft_do_not_go_on_with_what_none_would_begin() -> None:
    """The drafter works as long for one group as for three, so that none gains by stopping alone."""
    simulation = Simulation(MACHINES["cpu-shared"], AUTO, MIXED, 6)
    run(simulation, 300)
    for group in simulation.controllers.of(VERIFIER).groups.values():
        group.decision = replace(group.decision, way=("ngram", "draft_model"), num_draft_tokens=4, fan_out=1)
        for member in group.members:
            member.take_up(group.decision)
    run(simulation, 60)
    assert share_elsewhere(simulation, 200) < 0.1


def test_it_turns_off_when_acceptance_collapses_and_on_again_when_it_returns() -> None:
    simulation = simulate(CHAT, 1)
    assert not group_of(simulation).decision.is_off
    simulation.kinds = [replace(USELESS, temperature=0.0)]
    run(simulation, 1500)
    assert "draft_model" not in group_of(simulation).decision.way
    simulation.kinds = [CHAT]
    run(simulation, 2500)
    assert "draft_model" in group_of(simulation).decision.way


def test_tries_of_what_does_not_draft_are_few() -> None:
    simulation = simulate(USELESS, 1, busy=True, steps=600)
    drafted = 0
    for _ in range(2000):
        simulation.step()
        drafted += simulation.streams[0].drafting is not None and bool(simulation.streams[0].drafting.way)
    assert 0 < drafted < 0.05 * 2000


def test_hot_and_greedy_requests_of_one_tenant_are_decided_apart() -> None:
    simulation = Simulation(GPU, AUTO, [CHAT, replace(USELESS, temperature=1.5)], 8)
    run(simulation, 600)
    groups = simulation.controllers.of(VERIFIER).groups
    assert not groups[Kind("t", "greedy")].decision.is_off
    hot = groups[Kind("t", "high")].decision
    assert hot.num_draft_tokens < groups[Kind("t", "greedy")].decision.num_draft_tokens


def test_above_the_gate_on_temperature_no_request_is_drafted_for_or_tried() -> None:
    gated = replace(AUTO, off_above_temperature=1.0)
    simulation = simulate(HOT, policy=gated)
    assert group_of(simulation).decision.reason is Reason.TEMPERATURE
    assert all(stream.drafting is not None and not stream.drafting.way for stream in simulation.streams)


def test_a_policy_without_gates_or_control_stays_whatever_happens() -> None:
    listed = Tenant(name="t", anonymous=True, proposers=("draft_model",), num_draft_tokens=4)
    simulation = simulate(USELESS, 2, listed, busy=True, steps=200)
    assert group_of(simulation).decision.reason is Reason.FIXED
    for stream in simulation.streams:
        assert stream.drafting is not None
        assert (stream.drafting.way, stream.drafting.num_draft_tokens) == (("draft_model",), 4)


class Client:
    """A running request that notes what it is told."""

    tells = True

    def __init__(self) -> None:
        self.ways: list[tuple[str, ...]] = []

    def take_up(self, decision: Decision) -> None:
        self.ways.append(decision.way)

    def take_up_policy(self) -> None:
        """Nothing changes here."""


def test_a_gate_on_running_sequences_closes_and_opens_for_running_requests() -> None:
    controller, client, kind = Controller(VERIFIER, lambda: (DRAFT_MODEL,)), Client(), Kind("t", "greedy")
    gated = Tenant(name="t", anonymous=True, proposers=("ngram",), off_above_running=8)
    assert controller.join(client, kind, gated).way == ("ngram",)
    for num_running, ways in ((4, []), (9, [()]), (2, [(), ("ngram",)])):
        step = StepReport(num_running=num_running, num_tokens=num_running, step_us=5000)
        controller.note_pass(client, kind, Commit(1, 10, (5,)), step, Asked())
        assert client.ways == ways


def test_a_request_whose_seed_another_may_have_steers_no_other() -> None:
    told, untold = Client(), Client()
    untold.tells = False
    controller, kind = Controller(VERIFIER, lambda: (DRAFT_MODEL,)), Kind("t", "high")
    group = None
    for client, expected in ((untold, 0.0), (told, 1.0)):
        controller.join(client, kind, AUTO)
        group = controller.groups[kind]
        commit = Commit(1, 10, (5, 6), 1, 4, "draft_model", hit=True)
        controller.note_pass(client, kind, commit, StepReport(num_running=1), Asked(("draft_model",), 4))
        assert group.evidence.acceptance("draft_model").drafted.trials == expected
