"""Training rows that hold text of an evaluation prompt are found, wherever it stands."""

from __future__ import annotations

import pytest
import torch

from slipstream.training.separation import WINDOW, contaminated, require_apart

QUESTION = tuple(range(100, 112))


def rows_with(tokens: tuple[int, ...], at: int, row: int) -> torch.Tensor:
    token_ids = torch.randint(0, 90, (4, 30), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    token_ids[row, at : at + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    return token_ids


@pytest.mark.parametrize("at", [0, 7, 30 - WINDOW])
def test_any_window_of_a_question_marks_its_row(at: int) -> None:
    shared = contaminated(rows_with(QUESTION[2 : 2 + WINDOW], at, row=2), [QUESTION])
    assert shared.tolist() == [False, False, True, False]


def test_one_token_less_than_a_window_is_allowed() -> None:
    assert not contaminated(rows_with(QUESTION[: WINDOW - 1], 5, row=1), [QUESTION]).any()


def test_a_question_shorter_than_the_window_counts_whole() -> None:
    shared = contaminated(rows_with(QUESTION[:3], 5, row=1), [QUESTION[:3], QUESTION])
    assert shared.tolist() == [False, True, False, False]


def test_the_same_tokens_in_another_order_are_other_text() -> None:
    assert not contaminated(rows_with(QUESTION[:WINDOW][::-1], 5, row=1), [QUESTION]).any()


def test_training_on_evaluation_text_is_refused_with_the_number_of_rows() -> None:
    with pytest.raises(ValueError, match="1 training rows share 8 tokens"):
        require_apart(rows_with(QUESTION, 5, row=3), [QUESTION])
