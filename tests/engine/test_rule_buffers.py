"""Token rules lie where a captured step looks for them, and nothing of an earlier step is left."""

from __future__ import annotations

import torch

from slipstream.engine.rule_buffers import RuleBuffers
from slipstream.request import SamplingParams
from slipstream.sampling.rule_rows import RowContext, RuleWords, pack_rules
from slipstream.sampling.token_rules import TokenRules

CPU = torch.device("cpu")


def words(num_tokens: int, num_rows: int) -> RuleWords:
    rules = TokenRules(SamplingParams(repetition_penalty=1.5), range(num_tokens), num_tokens, ())
    packed = pack_rules([RowContext(rules, ())] * num_rows, 100)
    assert packed is not None
    return packed


def test_a_smaller_step_finds_its_own_rules_and_none_of_a_larger_one_before() -> None:
    buffers = RuleBuffers(8, CPU)
    table = buffers.table(4)
    buffers.upload(words(30, 6))
    small = words(3, 2)
    buffers.upload(small)
    assert table.spans[:2].tolist() == small.spans.tolist()
    assert not table.spans[2:].any()
    assert table.entries[:3].tolist() == small.entries.tolist()


def test_more_entries_than_there_is_room_for_are_not_held() -> None:
    buffers = RuleBuffers(8, CPU, most_entries=10)
    assert buffers.holds(words(10, 1))
    assert not buffers.holds(words(11, 1))
