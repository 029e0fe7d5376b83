"""Verification on a GPU gives the verdicts of sampling/verification.py, whole or on slices of the vocabulary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from slipstream.kernels.gpu.check_table import Column, pack_checks
from slipstream.kernels.gpu.decided_rows import decide_rows
from slipstream.kernels.gpu.row_statistics import RowParts, row_statistics
from slipstream.kernels.gpu.second_look import second_look, verdicts
from slipstream.kernels.gpu.verification import verify, verify_table, without_unlikely
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling import target_law, verification
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.token_rules import TokenRules
from slipstream.sampling.vocabulary_slice import VocabularySlice
from tests.kernels.gpu.random_checks import LIMITED, MIN_P, PLAIN, RandomChecks
from tests.sampling.random_masks import cut_check
from tests.sampling.random_rules import random_sampling


def check_verdicts(seed: int, vocab_size: int, sampling: list[SamplingParams], device: torch.device) -> None:
    source = RandomChecks(seed, vocab_size)
    checks = [source.check(params) for params in sampling]
    logits = source.logits(checks)
    expected = verification.verify(logits, checks)
    assert verify(logits.to(device), checks) == expected


@pytest.mark.parametrize("vocab_size", [5, 1027, 5000])
def test_verdicts_equal_the_reference(vocab_size: int, device: torch.device) -> None:
    check_verdicts(1, vocab_size, [*PLAIN, *PLAIN], device)


@pytest.mark.parametrize("vocab_size", [11, 2100])
def test_verdicts_under_limits_equal_the_reference(vocab_size: int, device: torch.device) -> None:
    check_verdicts(2, vocab_size, [*LIMITED, PLAIN[1]], device)


def check_masked_verdicts(seed: int, vocab_size: int, device: torch.device) -> None:
    rng = np.random.default_rng(seed)
    checks = [cut_check(rng, vocab_size) for _ in range(6)]
    num_rows = sum(len(check.draft) + 1 for check in checks)
    logits = torch.from_numpy(rng.normal(0, 2, (num_rows, vocab_size)).astype(np.float32))
    assert any(check.last_token for check in checks)
    assert verify(logits.to(device), checks) == verification.verify(logits, checks)


@pytest.mark.parametrize("seed", [0, 1])
def test_verdicts_of_masked_and_cut_drafts_equal_the_reference(seed: int, device: torch.device) -> None:
    check_masked_verdicts(seed, 70, device)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", [1, 3, 4, 5])
def test_compiled_verdicts_of_masked_and_cut_drafts_equal_the_reference(seed: int, device: torch.device) -> None:
    check_masked_verdicts(seed, 5000, device)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("vocab_size", [5, 1027, 49152, 151936])
def test_compiled_verdicts_equal_the_reference(vocab_size: int, seed: int, device: torch.device) -> None:
    check_verdicts(seed, vocab_size, [*PLAIN, *LIMITED] * 2, device)


def test_no_checks_give_no_verdicts(device: torch.device) -> None:
    assert verify(torch.empty(0, 7, device=device), []) == []


def test_logits_of_another_number_of_rows_are_refused(device: torch.device) -> None:
    check = RandomChecks(0, 7).check(PLAIN[0], max_draft_tokens=0)
    with pytest.raises(ValueError, match="target_logits has 2 rows; the checks need 1"):
        verify(torch.zeros(2, 7, device=device), [check])


def test_slices_of_the_vocabulary_together_decide_as_one(device: torch.device) -> None:
    source = RandomChecks(3, 1200)
    checks = [source.check(params) for params in (*PLAIN, *PLAIN)]
    logits = source.logits(checks)
    table = pack_checks(checks, 1200, device)
    slices = [(first, logits[:, first : first + 400].to(device)) for first in (0, 400, 800)]
    parts = together([row_statistics(part, table, first) for first, part in slices])
    decided = decide_rows(table, parts, None)
    found = together([second_look(part, table, decided, None, first) for first, part in slices])
    expected = [[verdict.num_accepted, verdict.token_ids[-1]] for verdict in verification.verify(logits, checks)]
    assert verdicts(table, decided, found).tolist() == expected


def together(parts: list[RowParts]) -> RowParts:
    return RowParts(*(torch.cat(tensors, 1) for tensors in zip(*((p.values, p.tokens) for p in parts), strict=True)))


def test_limits_are_refused_on_a_slice(device: torch.device) -> None:
    check = RandomChecks(0, 64).check(SamplingParams(top_k=3), max_draft_tokens=0)
    table = pack_checks([check], 64, device)
    with pytest.raises(ValueError, match="gather the logits first"):
        verify_table(torch.zeros(1, 32, device=device), table, VocabularySlice(32, lambda tensor: tensor, 64))


def test_min_p_needs_no_more_of_a_slice_than_its_largest_logit(device: torch.device) -> None:
    source = RandomChecks(6, 96)
    checks = [source.check(params) for params in (*MIN_P, *PLAIN[:2], *MIN_P)]
    logits = source.logits(checks).to(device)
    table = pack_checks(checks, 96, device)
    vocabulary = VocabularySlice(32, lambda largest: logits.amax(1, keepdim=True), 96)
    kept, unlimited = without_unlikely(logits[:, 32:64].clone(), table, vocabulary)
    assert (table.limited, unlimited.limited) == (True, False)
    assert (unlimited.words[:, Column.LIMITED] == 0).all()
    params = [check.sampling for check in checks for _ in range(len(check.draft) + 1)]
    shaped = target_law.shape_logits(logits.cpu(), params)[:, 32:64]
    assert torch.equal(kept.cpu().isinf(), shaped.isinf())


def test_equal_logits_share_one_fate_under_top_k_and_the_first_wins_when_greedy(device: torch.device) -> None:
    logits = torch.zeros(1, 40, device=device)
    logits[0, 30:] = -5.0
    tied = SequenceCheck(draft=(), base=3, sampling=SamplingParams(top_k=2), mode=VerificationMode.RATIO, seed=5)
    greedy = SequenceCheck(draft=(), base=3, sampling=PLAIN[0], mode=VerificationMode.RATIO)
    for check in (tied, greedy):
        assert verify(logits, [check]) == verification.verify(logits.cpu(), [check])
    assert verify(logits, [greedy])[0].token_ids == (0,)


@pytest.mark.timeout(60)
def test_a_row_that_nothing_is_left_of_harms_no_other(device: torch.device) -> None:
    source = RandomChecks(5, 700)
    checks = [source.check(params) for params in (*PLAIN, *LIMITED)]
    logits = source.logits(checks)
    emptied = logits.clone()
    firsts = [sum(len(check.draft) + 1 for check in checks[:i]) for i in range(len(checks))]
    emptied[firsts[::2]] = -torch.inf
    given = verify(emptied.to(device), checks)
    assert given[1::2] == verification.verify(logits, checks)[1::2]
    assert all(0 <= verdict.token_ids[-1] < 700 for verdict in given)


def test_token_rules_change_verdicts_as_in_the_reference(device: torch.device) -> None:
    source, rng = RandomChecks(6, 300), np.random.default_rng(6)
    rules = [TokenRules(random_sampling(rng, 300), rng.integers(300, size=200).tolist(), 150, (1, 2)) for _ in range(4)]
    shaped = [replace(one.sampling, temperature=0.7 * (i % 3), top_k=20 * (i % 2)) for i, one in enumerate(rules)]
    checks = [replace(source.check(params), rules=one) for params, one in zip(shaped, rules, strict=True)]
    logits = source.logits(checks)
    expected = verification.verify_reference(logits, checks)
    assert verify(logits.to(device), checks) == expected
    assert verification.verify(logits, checks) == expected
    assert verification.verify(logits, [replace(check, rules=None) for check in checks]) != expected


@pytest.mark.gpu  # numpy, by which the interpreter computes, refuses such a row
@pytest.mark.parametrize("params", [PLAIN[0], PLAIN[1]])
def test_a_row_of_nan_chooses_a_token_of_the_vocabulary(params: SamplingParams, device: torch.device) -> None:
    check = RandomChecks(0, 1027).check(params, max_draft_tokens=0)
    (verdict,) = verify(torch.full((1, 1027), torch.nan, device=device), [check])
    assert 0 <= verdict.token_ids[-1] < 1027
