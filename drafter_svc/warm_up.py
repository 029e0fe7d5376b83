"""One draft step of each kind before a drafter serves, so that no sequence waits for what is made at first use.

Knows a proposer and its limits; no sequence is open yet, so nothing reads the KV that is written here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from drafter_svc.proposers.proposer import Drawing, Proposer, Row
from slipstream.request import SamplingParams, VerificationMode

NUM_TOKENS = 64  # prompt and drafts
NUM_OUTCOMES = 4
SAMPLINGS = (SamplingParams(temperature=0.0), SamplingParams())


def warm_up(proposer: Proposer) -> None:
    """A prompt, then one draft token for each kind of drawing, alone and together."""
    limits = proposer.limits
    room = min(NUM_TOKENS, limits.max_model_len, limits.num_blocks * limits.block_size)
    if room < 3:
        return
    blocks = range(-(-room // limits.block_size))
    drawings = [_drawing(sampling, mode) for sampling, mode in product(SAMPLINGS, VerificationMode)]
    features = np.zeros((room - 2, limits.feature_size), np.uint16) if limits.feature_size else None
    prompt = _row([0] * (room - 1), 0, blocks, drawings[0], num_wanted=0)
    proposer.propose([replace(prompt, features=features)])
    rows = [_row([0], room - 1, blocks, drawing, num_wanted=1) for drawing in drawings]
    for group in (*([row] for row in rows), rows):
        proposer.propose(group)
    if proposer.adapters is not None:
        proposer.propose([replace(row, adapter=0) for row in rows])  # an empty slot, but the kernels are made


def _drawing(sampling: SamplingParams, mode: VerificationMode) -> Drawing:
    return Drawing(sampling=sampling, mode=mode, seed=0, draft_key=0, sample_index=0)


def _row(token_ids: list[int], start: int, blocks: range, drawing: Drawing, *, num_wanted: int) -> Row:
    return Row(
        token_ids=token_ids,
        start=start,
        block_ids=blocks,
        drawing=drawing,
        draw=0,
        num_wanted=num_wanted,
        num_outcomes=NUM_OUTCOMES,
    )
