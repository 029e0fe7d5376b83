"""What a grammar forbids never comes, and a draft cut for it leaves the target's law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.token_masks import token_masks
from slipstream.sampling.verification import verify, verify_reference
from tests.sampling.random_masks import allowing, cut_check, drawn

VOCAB = 11
ALLOWED = (1, 4, 5, 9)
NUM_DRAWS = 4000
ALPHA = 1e-3


def plain(**changes: object) -> SequenceCheck:
    return SequenceCheck(
        **({"draft": (), "base": 5, "sampling": SamplingParams(), "mode": VerificationMode.RATIO} | changes)
    )


def test_masks_name_the_rows_of_the_checks_that_have_them() -> None:
    checks = [plain(), plain(fill_masks=allowing([ALLOWED])), plain(), plain(fill_masks=allowing([(0, 10)]))]
    masks = token_masks(checks, VOCAB)
    assert masks is not None
    assert masks.rows.tolist() == [1, 3]
    assert masks.bits.tolist() == [[sum(1 << t for t in ALLOWED)], [1 << 10 | 1]]
    assert token_masks([plain(), plain()], VOCAB) is None


@pytest.mark.parametrize("run", [verify, verify_reference])
def test_a_forbidden_token_never_comes_and_the_logits_are_left_alone(run: Callable[..., list]) -> None:
    logits = torch.randn(300, VOCAB, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    checks = [plain(seed=seed, fill_masks=allowing([ALLOWED])) for seed in range(300)]
    assert {verdict.token_ids[0] for verdict in run(logits, checks)} == set(ALLOWED)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("seed", range(6))
def test_masked_and_cut_checks_are_decided_as_the_rule_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checks = [cut_check(rng, VOCAB) for _ in range(12)]
    num_rows = sum(len(check.draft) + 1 for check in checks)
    logits = torch.from_numpy(rng.normal(0, 2, (num_rows, VOCAB)).astype(np.float32))
    assert verify(logits, checks) == verify_reference(logits, checks)


def first_tokens(decide: Callable[[SequenceCheck], SequenceCheck]) -> npt.NDArray[np.int64]:
    """How often each token comes first, when drafts are drawn from another law and cut where the mask forbids them."""
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(0, 0.5, VOCAB).astype(np.float32))
    token, allowed = drawn(rng, VOCAB), set(ALLOWED)
    checks = []
    for seed in range(NUM_DRAWS):
        choice = drawn(rng, VOCAB, token.law)
        legal = choice.token_id in allowed
        masks = allowing([ALLOWED, ALLOWED] if legal else [ALLOWED])
        changes = {"draft": (choice,)} if legal else {"cut": choice}
        checks.append(decide(plain(seed=seed, accept_key=seed, fill_masks=masks, **changes)))
    rows = logits.expand(sum(len(check.draft) + 1 for check in checks), -1)
    return np.bincount([verdict.token_ids[0] for verdict in verify(rows, checks)], minlength=VOCAB), logits


def p_value(counts: npt.NDArray[np.int64], logits: torch.Tensor) -> float:
    law = logits[list(ALLOWED)].softmax(-1).numpy().astype(np.float64)
    assert counts.sum() == counts[list(ALLOWED)].sum()
    return float(stats.chisquare(counts[list(ALLOWED)], law / law.sum() * NUM_DRAWS).pvalue)


def test_cutting_an_illegal_draft_and_drawing_from_the_residual_leaves_the_masked_law() -> None:
    assert p_value(*first_tokens(lambda check: check)) > ALPHA


def test_drawing_from_the_target_where_a_draft_was_cut_is_caught() -> None:
    def forget(check: SequenceCheck) -> SequenceCheck:
        return plain(draft=check.draft, seed=check.seed, accept_key=check.accept_key, fill_masks=check.fill_masks)

    assert p_value(*first_tokens(forget)) < ALPHA / 100
