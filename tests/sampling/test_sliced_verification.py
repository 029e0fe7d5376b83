"""Ranks with a slice of the vocabulary each decide as one that has all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.parallel.ranks import RankGroup
from slipstream.parallel.shard import TOKENS
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.noise import gumbel_noise, gumbel_noise_of, key_tensor
from slipstream.sampling.sliced_verification import (
    AnyCheck,
    ElsewhereCheck,
    decide_by_statistics,
    follower_checks,
    verify_sliced,
)
from slipstream.sampling.token_rules import make_token_rules
from slipstream.sampling.verification import verify, verify_reference
from slipstream.sampling.vocabulary_slice import VocabularySlice
from tests.kernels.gpu.random_checks import LIMITED, MIN_P, PLAIN, RandomChecks
from tests.parallel.rank_threads import on_ranks

SLICED = (*PLAIN, *MIN_P, SamplingParams(temperature=0.6, min_p=0.02))


def slice_of(logits: torch.Tensor, ranks: RankGroup) -> tuple[torch.Tensor, VocabularySlice]:
    """The rank's part of full logits, padded as the model pads it."""
    rank, size = ranks.shard.rank, ranks.shard.size
    vocab_size = logits.shape[1]
    piece = -(-vocab_size // (size * TOKENS)) * TOKENS
    padded = torch.nn.functional.pad(logits, (0, size * piece - vocab_size), value=-torch.inf)
    return padded[:, rank * piece : (rank + 1) * piece].clone(), VocabularySlice(rank * piece, ranks.gather, vocab_size)


def verdicts_of_rank_0(size: int, logits: torch.Tensor, checks: list[SequenceCheck]) -> list[Verdict]:
    def run(ranks: RankGroup) -> list[Verdict]:
        ours, vocabulary = slice_of(logits, ranks)
        told: list[AnyCheck] = list(checks) if ranks.shard.rank == 0 else follower_checks(checks, logits.shape[1])
        return verify_sliced(ours, told, vocabulary)

    return on_ranks(size, run)[0]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_verdicts_are_those_of_the_whole_vocabulary(size: int, seed: int) -> None:
    source = RandomChecks(seed, 1027)
    checks = [source.check(params) for params in (*SLICED, *LIMITED, *SLICED)]
    logits = source.logits(checks)
    found = verdicts_of_rank_0(size, logits, checks)
    assert found == verify(logits, checks) == verify_reference(logits, checks)
    assert any(verdict.num_accepted for verdict in found)


def test_a_rank_without_tokens_changes_nothing() -> None:
    source = RandomChecks(9, 70)
    checks = [source.check(params) for params in (*SLICED, *SLICED)]
    logits = source.logits(checks)
    assert verdicts_of_rank_0(4, logits, checks) == verify(logits, checks)


def test_statistics_alone_decide_what_needs_no_more() -> None:
    source = RandomChecks(2, 300)
    checks = [source.check(params) for params in (*SLICED, *SLICED)]
    assert follower_checks(checks, 300) == checks
    logits = source.logits(checks)

    def run(ranks: RankGroup) -> tuple[list[list[int]], int]:
        ours, vocabulary = slice_of(logits, ranks)
        widest = 0

        def gather(x: torch.Tensor) -> torch.Tensor:
            nonlocal widest
            widest = max(widest, x[0].numel())
            return ranks.gather(x)

        return decide_by_statistics(ours, checks, replace(vocabulary, gather=gather)).tolist(), widest

    expected = [[verdict.num_accepted, verdict.token_ids[-1]] for verdict in verify(logits, checks)]
    assert on_ranks(2, run) == [(expected, 4)] * 2


def test_an_empty_residual_on_every_rank_means_the_targets_law() -> None:
    """A token of law 1 that the target is as sure of, cut: a rejection with nothing left to recover."""
    token = DraftToken(70, LawKind.SPARSE, SparseLaw(np.array([70], np.int32), np.array([LAW_TOTAL], np.uint16)))
    check = SequenceCheck(draft=(), cut=token, base=7, sampling=SamplingParams(), mode=VerificationMode.RATIO, seed=11)
    logits = torch.full((1, 128), -torch.inf)
    logits[0, 70] = 1.5
    assert verdicts_of_rank_0(2, logits, [check]) == verify(logits, [check]) == [Verdict((70,), 0)]


def test_equal_logits_on_two_ranks_give_the_first_token() -> None:
    logits = torch.zeros(1, 256)
    check = SequenceCheck(draft=(), base=3, sampling=PLAIN[0], mode=VerificationMode.RATIO)
    logits[0, :50] = -1
    assert verdicts_of_rank_0(2, logits, [check])[0].token_ids == (50,)


def test_only_rank_0_knows_rules_masks_and_who_asked_for_log_probabilities() -> None:
    source = RandomChecks(5, 200)
    penalised = SamplingParams(temperature=0.0, repetition_penalty=1.3)
    ruled = replace(source.check(penalised), rules=make_token_rules(penalised, [3, 4, 5], 2, ()))
    asked = source.check(SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=2))
    checks = [source.check(PLAIN[0]), ruled, asked, source.check(LIMITED[0])]
    told = follower_checks(checks, 200)
    assert [type(check) for check in told] == [SequenceCheck, ElsewhereCheck, ElsewhereCheck, ElsewhereCheck]
    logits = source.logits(checks)
    expected, found = verify(logits, checks), verdicts_of_rank_0(2, logits, checks)
    assert [(v.token_ids, v.num_accepted) for v in found] == [(v.token_ids, v.num_accepted) for v in expected]
    assert found[2].logprobs is not None
    assert found[2].logprobs.logprobs.tolist() == expected[2].logprobs.logprobs.tolist()  # type: ignore[union-attr]


def test_noise_of_a_slice_is_that_of_its_tokens() -> None:
    keys, positions = key_tensor([7, 1 << 63]), torch.tensor([0, 99])
    whole = gumbel_noise(keys, positions, torch.zeros_like(positions), 200)
    part = gumbel_noise_of(range(64, 150), keys, positions, torch.zeros_like(positions))
    assert torch.equal(part, whole[:, 64:150])
