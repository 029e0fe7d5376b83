"""Tokens are chosen as each row asks, over the target's ids whatever the drafter's own vocabulary."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from drafter_svc.proposers.proposer import Drawing, Row
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.exchange import LAW_TOTAL, LawKind
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.token_rules import TokenRules

IDS = torch.tensor([2, 5, 7, 11])
LOGITS = torch.tensor([[0.0, 1.0, 3.0, 2.0]])


def row(temperature: float, mode: VerificationMode = VerificationMode.RATIO, num_outcomes: int = 2) -> Row:
    sampling = SamplingParams(temperature=temperature)
    drawing = Drawing(sampling=sampling, mode=mode, seed=3, draft_key=4, sample_index=0)
    return Row(
        token_ids=[1], start=6, block_ids=[0, 1], drawing=drawing, draw=0, num_wanted=1, num_outcomes=num_outcomes
    )


def choice(num_target_ids: int = 12) -> TokenChoice:
    return TokenChoice(vocab_size=12, num_target_ids=num_target_ids, num_kept=3, target_ids=IDS)


def test_a_greedy_token_is_the_likeliest_by_its_target_id() -> None:
    (proposal,) = choice().choose(LOGITS, [row(0.0)])
    assert (proposal.token.token_id, proposal.token.kind) == (7, LawKind.ONE_HOT)
    assert proposal.outcomes == (7, 11)
    assert proposal.confidence == pytest.approx(float(LOGITS.softmax(-1)[0, 2]))


def test_a_drawn_token_carries_its_law_and_a_coupled_one_none() -> None:
    ratio, coupled = choice().choose(LOGITS.repeat(2, 1), [row(1.0), row(1.0, VerificationMode.COUPLED)])
    assert ratio.token.law is not None
    assert set(ratio.token.law.token_ids.tolist()) == {5, 7, 11}
    assert int(ratio.token.law.counts.sum()) == LAW_TOTAL
    assert ratio.confidence == 1.0
    assert coupled.token.kind is LawKind.ONE_HOT


def test_padding_is_never_drafted() -> None:
    (proposal,) = choice(num_target_ids=7).choose(LOGITS, [row(0.0)])
    assert proposal.token.token_id == 5


def test_a_row_with_nothing_left_that_it_knows_drafts_what_it_would_without_rules() -> None:
    sampling = SamplingParams(temperature=0.0, allowed_token_ids=(3, 4))  # all unknown to this drafter
    rules = TokenRules(sampling, (1,), 1, ())
    known = TokenRules(SamplingParams(temperature=0.0, bad_words=((7,), (5, 11))), (5,), 1, ())
    unknown, second, third = choice().choose(
        LOGITS.repeat(3, 1),
        [
            replace(row(0.0), rules=rules),
            replace(row(0.0), rules=known, drafted=(2,)),
            replace(row(0.0), rules=known, drafted=()),
        ],
    )
    assert (unknown.token.token_id, second.token.token_id, third.token.token_id) == (7, 11, 5)
    assert third.outcomes == (5, 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("mode", VerificationMode)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_overflowed_drafts_in_vain_and_harms_no_other(
    value: float, mode: VerificationMode, temperature: float
) -> None:
    logits = torch.cat([LOGITS, LOGITS, torch.full_like(LOGITS, -torch.inf)])
    logits[1, 2] = value
    rows = [row(temperature, mode)] * 3
    whole, *broken = choice().choose(logits, rows)
    (alone,) = choice().choose(LOGITS, rows[:1])
    assert (whole.token.token_id, whole.outcomes) == (alone.token.token_id, alone.outcomes)
    for one in broken:
        assert one.token.token_id in IDS
        assert one.token.law is None or int(one.token.law.counts.sum()) == LAW_TOTAL


def test_no_rows_need_no_tokens() -> None:
    assert choice().choose(torch.empty(0, 4), []) == []
