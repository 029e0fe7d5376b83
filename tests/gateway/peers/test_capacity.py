"""What verifiers tell of their places, and what was measured of their steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.control.evidence import Asked
from gateway.peers.capacity import VerifierCapacity
from slipstream.exchange import Commit, StepReport
from tests.gateway.fakes import FakeVerifier, running_gateway


def told(num_seqs: int) -> FakeVerifier:
    verifier = FakeVerifier([])
    verifier.info = replace(verifier.info, max_num_seqs=num_seqs)
    return verifier


@pytest.mark.parametrize(("numbers", "expected"), [((4, 6), 10), ((4, 0), 0)])
async def test_places_are_those_of_all_verifiers_if_each_tells_its_own(numbers: tuple[int, int], expected: int) -> None:
    async with running_gateway([told(number) for number in numbers]) as gateway:
        assert gateway._places._capacity.num_seqs == expected


async def test_the_slowdown_is_measured_by_steps_of_as_many_sequences_on_each() -> None:
    verifiers = [told(4), told(4)]
    async with running_gateway(verifiers) as gateway:
        capacity = VerifierCapacity(gateway._peers.verifiers, gateway._controllers)
        assert capacity.slowdown(8, 2) == 1.0  # nothing was measured
        controller = gateway._controllers.of(verifiers[0].address)
        for num_running in (1, 2, 4) * 10:
            report = StepReport(num_running=num_running, num_tokens=num_running, step_us=1000 * num_running)
            controller._pace.note(Commit(1, 9, (5,)), report, Asked())
        assert capacity.slowdown(8, 4) == pytest.approx(2.0, rel=0.1)
