"""How many tokens the step behind a running one may have to feed for a sequence."""

from __future__ import annotations

import pytest

from slipstream.engine.successor import Branch, Successor
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

CHECK = SequenceCheck(draft=(), base=4, sampling=SamplingParams(temperature=0.0), mode=VerificationMode.RATIO)


@pytest.mark.parametrize(("lengths", "most"), [((), 1), ((0,), 1), ((2, 5, 1), 6)])
def test_the_longest_branch_and_the_token_before_it_are_room_enough_for_any_outcome(
    lengths: tuple[int, ...], most: int
) -> None:
    branches = [Branch(0, token_id, range(length)) for token_id, length in enumerate(lengths)]
    assert Successor(CHECK, (0, 1), branches).most_tokens == most
