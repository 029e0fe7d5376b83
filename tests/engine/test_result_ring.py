"""A step's result stays readable while the step behind it leaves its own."""

from __future__ import annotations

import torch

from slipstream.engine.result_ring import ResultRing


def test_two_steps_under_way_leave_their_results_in_two_places() -> None:
    decided = torch.zeros(2, 2, dtype=torch.int32)
    ring = ResultRing(decided, timed=False)
    first, second = ring.take(), ring.take()
    for result, value in ((first, 1), (second, 2)):
        result.start()
        decided.fill_(value)
        result.read()
    for result, value in ((first, 1), (second, 2)):
        result.wait()
        assert result.numbers.tolist() == [[value] * 2] * 2
        assert result.seconds is None
    assert ring.take() is first
