"""Entries of token rules change the logits that they name, a row's own in place of shared ones."""

from __future__ import annotations

import numpy as np
import torch

from slipstream.kernels.token_rules import apply_token_rules
from slipstream.sampling.rule_rows import RuleTable


def table(spans: list[list[int]], entries: list[tuple[int, float, float]]) -> RuleTable:
    words = np.zeros((len(entries), 3), dtype=np.int32)
    words[:, 0] = [token_id for token_id, _, _ in entries]
    words.view(np.float32)[:, 1:] = [numbers for _, *numbers in entries]
    return RuleTable(torch.tensor(spans, dtype=torch.int32), torch.from_numpy(words))


def test_a_positive_logit_is_divided_a_negative_one_multiplied_then_the_addend_comes() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, 0.0]])
    apply_token_rules(logits, table([[0, 3, 3, 3]], [(0, 4.0, 1.0), (1, 4.0, 1.0), (3, 4.0, -torch.inf)]))
    assert logits.tolist() == [[1.5, -7.0, 2.0, -torch.inf]]


def test_a_rows_own_entry_counts_alone_where_a_shared_one_names_the_same_token() -> None:
    logits = torch.full((3, 3), 8.0)
    entries = [(0, 2.0, 0.0), (1, 2.0, 0.0), (1, 4.0, -1.0), (2, 1.0, -3.0)]
    apply_token_rules(logits, table([[0, 2, 2, 2], [0, 2, 2, 4], [0, 0, 0, 0]], entries))
    assert logits.tolist() == [[4.0, 4.0, 8.0], [4.0, 1.0, 5.0], [8.0, 8.0, 8.0]]


def test_what_is_impossible_stays_so() -> None:
    logits = torch.tensor([[-torch.inf, 1.0]])
    apply_token_rules(logits, table([[0, 1, 1, 1]], [(0, 2.0, 50.0)]))
    assert logits.tolist() == [[-torch.inf, 1.0]]
