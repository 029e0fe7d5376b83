"""The kernels choose the tokens that the reference chooses."""

from __future__ import annotations

from collections.abc import Sequence

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
from slipstream.kernels.gpu.draft_choice import choose_drafts
from slipstream.request import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
SHAPES = [
    SamplingParams(),
    SamplingParams(temperature=0.6, top_k=3),
    SamplingParams(temperature=0.8, top_p=0.7),
    SamplingParams(temperature=1.3, top_k=40, top_p=0.9, min_p=0.05),
    SamplingParams(top_p=0.999),  # leaves more than are ranked
    SamplingParams(top_k=500),
    SamplingParams(temperature=1e-30),
]
ROWS = [(Kind.GREEDY, GREEDY), *((kind, shape) for kind in (Kind.COUPLED, Kind.LAW) for shape in SHAPES)]
# logits, token ids; fewer ids than logits are padding
SIZES = {"whole": (49_152, 49_140), "reduced": (12_288, 49_152), "two tiles": (1100, 1090), "few": (40, 100)}


def settings(rows: Sequence[tuple[Kind, SamplingParams]], device: torch.device) -> torch.Tensor:
    words = [
        with_draw(settings_of(sampling, kind, (i + 1) << 40 | i, i), (i + 7) << 33 | 5, 3 << 32 | i)
        for i, (kind, sampling) in enumerate(rows)
    ]
    return torch.from_numpy(table_of(words)).to(device)


def make_drafting(name: str, num_kept: int, device: torch.device) -> Drafting:
    num_logits, num_ids = SIZES[name]
    is_whole = num_logits >= num_ids
    ids = torch.arange(num_logits) if is_whole else torch.randperm(num_ids)[:num_logits].sort().values
    return Drafting(ids.int().masked_fill(ids >= num_ids, NO_TOKEN).to(device), is_whole, num_kept, 9)


@pytest.mark.parametrize(
    "name, num_kept, rows",
    [
        pytest.param("whole", 32, ROWS, marks=pytest.mark.gpu),
        pytest.param("reduced", 48, ROWS, marks=pytest.mark.gpu),
        ("two tiles", 32, [ROWS[1], ROWS[12]]),
        ("few", 16, [ROWS[0], ROWS[3], ROWS[9], ROWS[11], ROWS[14]]),
    ],
)
def test_kernels_choose_as_the_reference_does(
    name: str, num_kept: int, rows: list[tuple[Kind, SamplingParams]], device: torch.device
) -> None:
    torch.manual_seed(len(name))
    drafting, table = make_drafting(name, num_kept, device), settings(rows, device)
    logits = torch.randn(len(rows), len(drafting.target_ids), device=device) * 2.5
    positions = torch.arange(len(rows), device=device) * 7 + 100
    results = []
    for choose in (choose_drafts, choose_drafts_reference):
        drawn = torch.full((len(rows), drafting.width), 77, dtype=torch.int32, device=device)
        next_ids = torch.full((len(rows),), 77, device=device)
        choose(logits, table, positions, drafting, drawn, next_ids)
        assert torch.equal(next_ids, drawn[:, TOKEN].long())
        results.append(drawn.cpu())
    compare(*results, drafting)


def compare(drawn: torch.Tensor, expected: torch.Tensor, drafting: Drafting) -> None:
    """Counts may differ by what an exponential's last bit moves, and then a token that is drawn at their edge."""
    first_law, first_count = FIRST_OUTCOME + drafting.num_outcomes, drafting.width - drafting.num_kept
    assert torch.equal(drawn[:, FIRST_OUTCOME:first_law], expected[:, FIRST_OUTCOME:first_law])
    assert torch.equal(drawn[:, TOKEN], expected[:, TOKEN])
    counts, right = drawn[:, first_count:], expected[:, first_count:]
    assert counts.sum(-1).eq(LAW_TOTAL).all()
    assert int((counts - right)[:, 1:].abs().max()) <= 1
    possible = right > 0
    assert torch.equal(drawn[:, first_law:first_count][possible], expected[:, first_law:first_count][possible])
    confidences = (words[:, CONFIDENCE].clone().view(torch.float32) for words in (drawn, expected))
    torch.testing.assert_close(*confidences, rtol=1e-4, atol=1e-6)


def test_rows_of_nonsense_disturb_no_other_and_name_tokens_of_the_vocabulary(device: torch.device) -> None:
    drafting, rows = make_drafting("few", 16, device), [ROWS[8], ROWS[1]]
    logits = torch.randn(2, len(drafting.target_ids), device=device)
    spoiled = logits.clone()
    spoiled[0] = torch.nan
    results = []
    for given in (logits, spoiled):
        drawn = torch.zeros(2, drafting.width, dtype=torch.int32, device=device)
        next_ids = torch.zeros(2, dtype=torch.long, device=device)
        choose_drafts(given, settings(rows, device), torch.arange(2, device=device), drafting, drawn, next_ids)
        assert int(next_ids.min()) >= 0
        assert int(next_ids.max()) < 100
        results.append(drawn)
    assert torch.equal(results[0][1], results[1][1])
