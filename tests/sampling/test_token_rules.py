"""Token rules kept as a sequence grows give at every row what the plain rule gives from the whole prefix."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.kernels.token_rules import apply_token_rules
from slipstream.request import SamplingParams
from slipstream.sampling.rule_reference import rule_logits
from slipstream.sampling.rule_rows import RowContext, pack_rules, to_device
from slipstream.sampling.ruled_law import drafting_logits, ruled_logits
from slipstream.sampling.token_rules import TokenRules, make_token_rules
from tests.sampling.random_rules import samplings

VOCAB = 9
STOPS = (2, 5)
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=6)
CPU = torch.device("cpu")


def logits_of(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    st.lists(st.tuples(samplings(VOCAB), TOKENS.filter(len), st.lists(TOKENS, max_size=3), TOKENS), max_size=4),
    st.integers(0, 1000),
)
def test_every_row_is_ruled_as_the_plain_rule_says(
    sequences: list[tuple[SamplingParams, list[int], list[list[int]], list[int]]], seed: int
) -> None:
    rows, plain = [], []
    for sampling, prompt, commits, drafted in sequences:
        rules = make_token_rules(sampling, [*prompt, *(commits[0] if commits else ())], len(prompt), STOPS)
        for commit in commits[1:]:
            if rules is not None:
                rules.extend(commit)
        output = [token_id for commit in commits for token_id in commit]
        for offset in range(len(drafted) + 1):
            rows.append(RowContext(rules, drafted[:offset]))
            plain.append((sampling, prompt, output + drafted[:offset]))
    logits = logits_of(len(rows), seed)
    ruled = drafting_logits(logits, rows)
    for row, (sampling, prompt, output) in enumerate(plain):
        expected = rule_logits(logits[row].numpy(), sampling, prompt, output, STOPS)
        rules = rows[row].rules
        may_go_on = rules is None or rules.allows_any(rows[row].drafted, VOCAB)
        assert may_go_on == np.isfinite(expected).any()
        assert np.array_equal(ruled[row].numpy(), expected if may_go_on else logits[row].numpy())


def test_a_request_without_rules_has_none_and_its_logits_are_not_even_copied() -> None:
    plain = SamplingParams(temperature=0.3, top_k=4, stop_token_ids=(3,))
    assert make_token_rules(plain, (1, 2), 1, STOPS) is None
    logits = logits_of(3)
    assert ruled_logits(logits, [RowContext(None, ())] * 3) is logits
    assert ruled_logits(logits, []) is logits


def test_rows_of_one_sequence_share_what_holds_for_all_of_them() -> None:
    rules = TokenRules(SamplingParams(repetition_penalty=1.5), list(range(8)), 8, ())
    words = pack_rules([RowContext(rules, (3,) * offset) for offset in range(4)], VOCAB)
    assert words is not None
    assert len(words.entries) == 8 + 3, "the prompt's once, and one for each row that a draft token changes"


def test_what_a_row_adds_does_not_grow_with_the_prefix() -> None:
    rules = TokenRules(SamplingParams(frequency_penalty=0.5), [1], 1, ())
    rules.extend([token_id % VOCAB for token_id in range(500)])
    assert len(rules.shared) == VOCAB
    assert [entry.token_id for entry in rules.row_entries((4, 4, 6))] == [4, 6]
    assert [entry.addend for entry in rules.row_entries((4, 4, 6))] == [-0.5 * (56 + 2), -0.5 * (55 + 1)]


def test_a_bad_word_may_begin_in_the_prompt_and_end_in_a_draft() -> None:
    rules = TokenRules(SamplingParams(bad_words=((6, 7, 8),)), (1, 6), 2, ())
    assert rules.row_entries(()) == []
    assert [entry.token_id for entry in rules.row_entries((7,))] == [8]
    assert rules.row_entries((7, 1)) == []


def test_tokens_outside_the_vocabulary_are_left_out() -> None:
    rules = TokenRules(SamplingParams(repetition_penalty=2.0, logit_bias=((40, 1.0),)), (3, 50), 2, (60,))
    words = pack_rules([RowContext(rules, (70,))], VOCAB)
    assert words is not None
    logits = torch.ones(1, VOCAB)
    apply_token_rules(logits, to_device(words, CPU))
    assert logits[0].tolist() == [1, 1, 1, 0.5, 1, 1, 1, 1, 1]


def test_a_mask_has_a_bit_for_each_allowed_token_of_the_vocabulary_at_hand() -> None:
    rules = TokenRules(SamplingParams(allowed_token_ids=(0, 33, 90)), (3,), 1, ())
    for vocab_size, words in ((70, [1, 2, 0]), (100, [1, 2, 1 << 26, 0]), (70, [1, 2, 0])):
        mask = rules.mask(vocab_size)
        assert mask is not None
        assert mask.tolist() == words
