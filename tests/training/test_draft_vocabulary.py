"""The draft's vocabulary is the frequent part of the target's text."""

from __future__ import annotations

import pytest
import torch

from slipstream.training.draft_vocabulary import choose_tokens, coverage, draft_first, offsets

WRITTEN = torch.tensor([7, 7, 7, 3, 3, 9, 9, 9, 9, 1])


def test_the_most_frequent_tokens_are_chosen_in_ascending_order() -> None:
    assert choose_tokens(WRITTEN, 3, 12, ()).tolist() == [3, 7, 9]


def test_tokens_that_must_be_there_are_there() -> None:
    assert choose_tokens(WRITTEN, 3, 12, (11,)).tolist() == [7, 9, 11]


def test_coverage_is_the_share_of_written_tokens() -> None:
    assert coverage(WRITTEN, torch.tensor([7, 9])) == pytest.approx(0.7)


def test_offsets_lead_back_to_the_targets_ids() -> None:
    tokens = torch.tensor([3, 7, 9])
    assert [i + int(offset) for i, offset in enumerate(offsets(tokens))] == [3, 7, 9]


def test_the_heads_order_holds_every_token_once_and_the_drafts_first() -> None:
    order = draft_first(torch.tensor([3, 7, 9]), 12)
    assert order[:3].tolist() == [3, 7, 9]
    assert sorted(order.tolist()) == list(range(12))


@pytest.mark.parametrize("size", [0, 13])
def test_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"draft_vocab_size is {size}"):
        choose_tokens(WRITTEN, size, 12, ())
