"""Tokens chosen by a table are those that draft_law.py chooses row by row."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from slipstream.exchange import LAW_TOTAL
from slipstream.kernels.draft_choice import (
    CONFIDENCE,
    FIRST_OUTCOME,
    NO_TOKEN,
    TOKEN,
    Drafting,
    Kind,
    choose_drafts_reference,
    settings_of,
    table_of,
    with_draw,
)
from slipstream.request import SamplingParams
from slipstream.sampling.draft_law import draw, guess_outcomes, sparse_laws
from slipstream.sampling.philox import DRAW_BITS, derive_key
from slipstream.sampling.target_law import shape_logits

VOCAB, NUM_KEPT, NUM_OUTCOMES = 200, 8, 5
GREEDY = SamplingParams(temperature=0.0)
SHAPES = [
    SamplingParams(),
    SamplingParams(temperature=0.6, top_k=3),
    SamplingParams(top_p=0.7),
    SamplingParams(temperature=1.3, top_k=40, top_p=0.9, min_p=0.05),
    SamplingParams(min_p=0.2),
    SamplingParams(temperature=1e-30),
]
KINDS = {kind: [GREEDY] if kind is Kind.GREEDY else SHAPES for kind in Kind}
ROWS = [(kind, sampling) for kind, shapes in KINDS.items() for sampling in shapes]


def seed_of(row: int) -> int:
    return (row + 1) << 40 | row


def draw_of(row: int) -> int:
    return 3 << 32 | row


def settings() -> torch.Tensor:
    rows = [
        with_draw(
            settings_of(sampling, kind, seed_of(i), i), derive_key(seed_of(i) + 1, draw_of(i) >> DRAW_BITS), draw_of(i)
        )
        for i, (kind, sampling) in enumerate(ROWS)
    ]
    return torch.from_numpy(table_of(rows))


def chosen(logits: torch.Tensor, target_ids: torch.Tensor) -> torch.Tensor:
    drafting = Drafting(target_ids.int(), False, NUM_KEPT, NUM_OUTCOMES)
    drawn = torch.full((len(logits), drafting.width), 77, dtype=torch.int32)
    next_ids = torch.zeros(len(logits), dtype=torch.long)
    choose_drafts_reference(logits, settings(), positions(), drafting, drawn, next_ids)
    assert torch.equal(next_ids, drawn[:, TOKEN].long())
    return drawn


def positions() -> torch.Tensor:
    return torch.arange(len(ROWS)) * 7 + 100


@pytest.mark.parametrize("num_ids, seed", [*product([VOCAB, 30], range(3))])
def test_every_row_is_drawn_as_the_plain_rule_says(num_ids: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(ROWS), num_ids, generator=generator) * 3
    target_ids = torch.randperm(VOCAB, generator=generator)[:num_ids].sort().values
    full = torch.full((len(ROWS), VOCAB), -torch.inf).index_copy_(1, target_ids, logits)
    sampling = [params for _, params in ROWS]
    shaped = shape_logits(full, sampling)
    samples, places = list(range(len(ROWS))), positions().tolist()
    guesses = guess_outcomes(shaped, sampling, [seed_of(i) for i in samples], places, samples, NUM_OUTCOMES)
    ids, counts = sparse_laws(shaped, NUM_KEPT)
    tokens = draw(ids, counts, [seed_of(i) + 1 for i in samples], places, samples, [draw_of(i) for i in samples])
    drawn = chosen(logits, target_ids)
    confidences = drawn[:, CONFIDENCE].view(torch.float32)
    for i, (kind, _) in enumerate(ROWS):
        row, outcomes = drawn[i].tolist(), drawn[i, FIRST_OUTCOME : FIRST_OUTCOME + NUM_OUTCOMES].tolist()
        assert outcomes == guesses[i] + [NO_TOKEN] * (NUM_OUTCOMES - len(guesses[i]))
        law_ids, law_counts = np.split(drawn[i, FIRST_OUTCOME + NUM_OUTCOMES :].numpy(), 2)
        possible = counts[i] > 0
        assert law_counts.sum() == LAW_TOTAL
        np.testing.assert_array_equal(law_counts, counts[i])
        np.testing.assert_array_equal(law_ids[possible], ids[i][possible])
        assert row[TOKEN] == (tokens[i] if kind is Kind.LAW else guesses[i][0])
        expected = 1.0 if kind is Kind.LAW else float(shaped[i].softmax(-1)[row[TOKEN]])
        assert float(confidences[i]) == pytest.approx(expected, rel=1e-5)


def test_padding_ids_are_neither_drawn_nor_guessed() -> None:
    logits = torch.arange(20.0).repeat(len(ROWS), 1)
    target_ids = torch.arange(20).masked_fill(torch.arange(20) >= 6, NO_TOKEN)
    drawn = chosen(logits, target_ids)
    named = drawn[:, [TOKEN, *range(FIRST_OUTCOME, FIRST_OUTCOME + NUM_OUTCOMES)]]
    assert int(drawn[:, TOKEN].min()) >= 0
    assert int(named.max()) == 5


def test_fewer_tokens_than_a_law_keeps_leave_the_rest_without_count() -> None:
    drawn = chosen(torch.zeros(len(ROWS), 3), torch.tensor([4, 5, 9]))
    assert set(drawn[:, TOKEN].tolist()) <= {4, 5, 9}
    counts = drawn[:, FIRST_OUTCOME + NUM_OUTCOMES + NUM_KEPT :]
    assert counts[:, 3:].eq(0).all()
    assert counts.sum(-1).eq(LAW_TOTAL).all()
