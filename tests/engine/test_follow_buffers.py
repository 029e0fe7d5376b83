"""What is written for a step behind a running one arrives, and the next one's writing does not disturb it."""

from __future__ import annotations

import numpy as np
import torch

from slipstream.engine.follow_buffers import FollowBuffers
from slipstream.engine.successor import Branch, Successor
from slipstream.kernels.follow_up import PAD
from slipstream.kernels.gpu.check_table import NUM_COLUMNS
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck


def successor(base: int, *branches: Branch) -> Successor:
    check = SequenceCheck(draft=(), base=base, sampling=SamplingParams(), mode=VerificationMode.COUPLED)
    return Successor(check, [base, base + 1], branches)


def columns(count: int) -> np.ndarray:
    return np.arange(count * NUM_COLUMNS, dtype=np.int32).reshape(count, NUM_COLUMNS)


def test_each_sequences_branches_and_blocks_arrive_in_its_row() -> None:
    buffers = FollowBuffers(most_seqs=4, max_blocks=3, device=torch.device("cpu"))
    first, second = successor(5, Branch(0, 7, [1, 2]), Branch(2, 8, [3])), successor(9)
    buffers.upload(3, [first, second], columns(2))
    inputs = buffers.inputs
    assert inputs.counts.tolist() == [3, 2]
    assert inputs.bases.tolist()[:2] == [5, 9]
    assert list(zip(inputs.accepted[0].tolist(), inputs.outcomes[0].tolist(), strict=True))[:2] == [(0, 7), (2, 8)]
    assert inputs.lengths[0].tolist()[:2] == [2, 1]
    assert inputs.drafts[0, :2, :2].tolist() == [[1, 2], [3, PAD]]
    assert set(inputs.accepted[1].tolist()) == {PAD}
    assert inputs.block_tables[:2, :2].tolist() == [[5, 6], [9, 10]]
    assert np.array_equal(inputs.columns[:2].numpy(), columns(2))
    assert (first.most_tokens, second.most_tokens) == (3, 1)


def test_branches_of_an_earlier_step_are_gone_and_the_place_of_the_step_before_is_left_alone() -> None:
    buffers = FollowBuffers(most_seqs=2, max_blocks=2, device=torch.device("cpu"))
    buffers.upload(1, [successor(5, Branch(0, 7, [1]))], columns(1))
    written = buffers._places[buffers._turn].clone()
    place = buffers._turn
    buffers.upload(2, [successor(6)], columns(1))
    assert torch.equal(buffers._places[place], written), "a copy that has not begun would bring the wrong step"
    assert set(buffers.inputs.accepted[0].tolist()) == {PAD}
