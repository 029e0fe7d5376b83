"""Log probabilities are those of the raw logits, of the tokens that were decided, and only for who asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.logprobs import ROWS_AT_ONCE, AskedRows, read_scores, score
from slipstream.sampling.verification import verify

VOCAB = 40
CPU = torch.device("cpu")
ASKS: dict[str, Any] = {"logprobs": True, "num_top_logprobs": 3}


def random_logits(num_rows: int, vocab_size: int = VOCAB) -> torch.Tensor:
    return 3 * torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(num_rows))


def one_hot(token_id: int) -> DraftToken:
    return DraftToken(token_id, LawKind.ONE_HOT)


def sparse(token_id: int) -> DraftToken:
    law = SparseLaw(np.array([token_id, VOCAB - 1], np.int32), np.array([LAW_TOTAL // 2] * 2, np.uint16))
    return DraftToken(token_id, LawKind.SPARSE, law)


def check(
    draft: Sequence[DraftToken] = (), mode: VerificationMode = VerificationMode.COUPLED, **sampling: object
) -> SequenceCheck:
    params = SamplingParams(**({"temperature": 0.0} | sampling))  # type: ignore[arg-type]
    return SequenceCheck(draft=tuple(draft), base=9, sampling=params, mode=mode, seed=4, accept_key=5)


def assert_told(verdict: Verdict, logits: torch.Tensor, num_top: int) -> None:
    """`logits` from the sequence's first row on."""
    expected = logits.double().log_softmax(-1).numpy()
    told = verdict.logprobs
    assert told is not None
    assert len(told) == len(verdict.token_ids)
    assert told.top_logprobs.shape == (len(told), num_top)
    for row, token_id in enumerate(verdict.token_ids):
        assert told.logprobs[row] == pytest.approx(expected[row, token_id], abs=1e-5)
        best = np.argsort(-expected[row])[:num_top]
        assert told.top_token_ids[row].tolist() == best.tolist()
        np.testing.assert_allclose(told.top_logprobs[row], expected[row, best], atol=1e-5)


@pytest.mark.parametrize("mode", list(VerificationMode))
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_accepted_recovered_and_bonus_tokens_have_those_of_the_raw_logits(
    mode: VerificationMode, temperature: float
) -> None:
    logits = random_logits(40)
    draw = sparse if mode is VerificationMode.RATIO and temperature else one_hot
    likeliest = logits.argmax(-1).tolist()
    drafts = [[draw(token_id) for token_id in likeliest[first : first + 3]] for first in range(0, 40, 4)]
    shaping = {"temperature": temperature, "top_k": 5, "min_p": 0.01}
    verdicts = verify(logits, [check(draft, mode, **ASKS, **shaping) for draft in drafts])
    for number, verdict in enumerate(verdicts):
        assert_told(verdict, logits[4 * number : 4 * number + 4], 3)
    assert any(verdict.num_accepted == 3 for verdict in verdicts), "no bonus token"
    if temperature:
        assert any(verdict.num_accepted < 3 for verdict in verdicts), "no recovered token"


@pytest.mark.parametrize("seed", range(12))
def test_any_batch_of_one_to_eight_sequences_with_zero_to_seven_drafts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 8, rng.integers(1, 9)).tolist()
    logits = random_logits(sum(sizes) + len(sizes))
    firsts = np.cumsum([0, *(size + 1 for size in sizes)]).tolist()
    checks = []
    for first, size in zip(firsts, sizes, strict=False):
        likeliest = logits[first : first + size].argmax(-1).tolist()
        draft = [one_hot(token_id if rng.random() < 0.8 else int(rng.integers(VOCAB))) for token_id in likeliest]
        num_top = int(rng.integers(0, 6))
        asks: dict[str, Any] = {"logprobs": True, "num_top_logprobs": num_top} if rng.random() < 0.7 else {}
        checks.append(check(draft, temperature=float(rng.choice([0.0, 0.5])), **asks))
    for verdict, one, first in zip(verify(logits, checks), checks, firsts, strict=False):
        if one.sampling.logprobs:
            assert_told(verdict, logits[first:], one.sampling.num_top_logprobs)
        else:
            assert verdict.logprobs is None


def test_asking_changes_no_token_and_leaves_the_logits_as_they_were() -> None:
    logits = random_logits(8)
    before = logits.clone()
    drafts = [[one_hot(3), one_hot(4)], [one_hot(int(logits[3].argmax()))], [], [one_hot(1)]]
    told = verify(logits, [check(draft, temperature=0.5, **ASKS) for draft in drafts])
    silent = verify(logits, [check(draft, temperature=0.5) for draft in drafts])
    assert [(v.token_ids, v.num_accepted) for v in told] == [(v.token_ids, v.num_accepted) for v in silent]
    assert torch.equal(logits, before)


def test_each_sequence_of_a_batch_gets_as_many_as_it_asked_for() -> None:
    logits = random_logits(6)
    asked = [check([one_hot(1)], **ASKS), check([one_hot(2)]), check([], logprobs=True), check([])]
    first, second, third, fourth = verify(logits, asked)
    assert_told(first, logits, 3)
    assert_told(third, logits[4:], 0)
    assert second.logprobs is None
    assert fourth.logprobs is None


def test_only_rows_of_sequences_that_asked_are_touched() -> None:
    assert AskedRows.of([check(), check([one_hot(1)])], CPU) is None
    asked = AskedRows.of([check([one_hot(1)]), check([one_hot(7)], **ASKS)], CPU)
    assert asked is not None
    assert asked.columns[0].tolist() == [2, 3]
    assert asked.columns[3].tolist() == [7, 0]


def test_many_rows_are_scored_a_bounded_number_at_a_time() -> None:
    logits = random_logits(2 * ROWS_AT_ONCE + 5)
    token_ids = torch.arange(len(logits)) % VOCAB
    told = read_scores(score(logits, token_ids, 2))
    expected = logits.log_softmax(-1)
    np.testing.assert_allclose(told.logprobs, expected.gather(1, token_ids[:, None])[:, 0], atol=1e-5)
    assert told.top_token_ids[:, 0].tolist() == expected.argmax(-1).tolist()


def test_a_vocabulary_of_fewer_tokens_than_asked_for_is_told_whole() -> None:
    told = read_scores(score(random_logits(2, vocab_size=5), torch.tensor([0, 4]), 20))
    assert told.top_logprobs.shape == (2, 5)
    np.testing.assert_allclose(np.exp(told.top_logprobs).sum(-1), 1, atol=1e-5)


def test_what_a_grammar_took_away_still_has_its_probability() -> None:
    logits = random_logits(1)
    allowed = int(logits.argmin())

    def only_that(bits: npt.NDArray[np.int32]) -> None:
        bits[:] = 0
        bits[:, allowed // 32] = 1 << allowed % 32

    (verdict,) = verify(logits, [replace(check([], **ASKS), fill_masks=only_that)])
    assert verdict.token_ids == (allowed,)
    assert_told(verdict, logits, 3)
