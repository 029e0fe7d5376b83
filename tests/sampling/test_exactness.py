"""One pass of the verifier leaves the target's law as it is; every tempting wrong rule does not, and is caught here.

Seeds are fixed. Each rule is tested beside the mistake that it forbids: the negative control must fail the same test.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from slipstream.exchange import DraftToken, LawKind
from slipstream.request import SamplingParams, VerificationMode
from tests.sampling.tiny_world import (
    DRAFTER,
    OTHER_DRAFTER,
    TARGET,
    VOCAB,
    Drafter,
    Path,
    Prefixes,
    assert_biased,
    assert_exact,
    first_two,
    joint_law,
    paths,
)

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
SHAPED = SamplingParams(temperature=0.8, top_k=4, top_p=0.9, min_p=0.02)
UNSURE = 0.5  # a draft probability below this is low confidence
RULES = "slipstream.sampling.verification"

drafter, other_drafter = Drafter(), Drafter(OTHER_DRAFTER)
LAW = joint_law()


def one_hot(prefixes: Prefixes) -> list[DraftToken]:
    """The draft table's likeliest token: a function of the prefix, as an n-gram proposer's is."""
    return [DraftToken(token_id, LawKind.ONE_HOT) for token_id in DRAFTER[prefixes.last].argmax(-1).tolist()]


def coupled(prefixes: Prefixes) -> list[DraftToken]:
    return [DraftToken(guesses[0], LawKind.ONE_HOT) for guesses in drafter.guess(prefixes, 1)]


def no_drafts(prefixes: Prefixes) -> list[Path]:
    return [()] * len(prefixes.last)


def draft_prob(token: DraftToken) -> float:
    assert token.law is not None
    return token.law.probability(token.token_id)


def redrawn(prefixes: Prefixes) -> Prefixes:
    """The same prefixes under a draw number of their own."""
    return replace(prefixes, draws=prefixes.draws + 100)


@pytest.mark.parametrize("sampling", [SamplingParams(), SHAPED])
@pytest.mark.parametrize("mode", [RATIO, COUPLED])
def test_without_drafts_the_law_is_the_targets(sampling: SamplingParams, mode: VerificationMode) -> None:
    assert_exact(first_two(no_drafts, sampling, mode), joint_law(sampling))


@pytest.mark.parametrize("num_draft_tokens", [1, 2, 3, 4])
def test_drafts_with_sparse_laws_leave_the_law(num_draft_tokens: int) -> None:
    assert_exact(first_two(paths(drafter.draw, num_draft_tokens)), LAW)


@pytest.mark.parametrize("num_draft_tokens", [1, 2, 3, 4])
def test_one_hot_drafts_leave_the_law(num_draft_tokens: int) -> None:
    assert_exact(first_two(paths(one_hot, num_draft_tokens)), LAW)


@pytest.mark.parametrize("num_draft_tokens", [1, 2, 3, 4])
def test_coupled_drafts_leave_the_law(num_draft_tokens: int) -> None:
    assert_exact(first_two(paths(coupled, num_draft_tokens), mode=COUPLED), LAW)


def test_a_path_that_mixes_sparse_and_one_hot_tokens_leaves_the_law() -> None:
    def mixed(prefixes: Prefixes) -> list[DraftToken]:
        return drafter.draw(prefixes) if prefixes.base[0] % 2 else one_hot(prefixes)

    assert_exact(first_two(paths(mixed, 3)), LAW)


def test_drafts_for_a_shaped_target_leave_its_law_whatever_the_draft_law_was_shaped_by() -> None:
    assert_exact(first_two(paths(drafter.draw, 2), SHAPED), joint_law(SHAPED))


def test_verifying_with_the_full_law_what_was_drawn_from_a_truncated_one_is_caught() -> None:
    truncated = Drafter(OTHER_DRAFTER, num_kept=2)
    assert_exact(first_two(paths(truncated.draw, 1)), LAW)
    full = Drafter(OTHER_DRAFTER, num_kept=VOCAB)
    assert_biased(first_two(paths(replace(truncated, told=full).draw, 1)), LAW)


def test_verifying_with_the_law_of_another_proposer_is_caught() -> None:
    assert_biased(first_two(paths(Drafter(OTHER_DRAFTER, told=drafter).draw, 1)), LAW)


def test_drawing_the_recovered_token_from_the_target_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{RULES}.recovery_weights", lambda target_probs, draft_probs: target_probs)
    assert_biased(first_two(paths(drafter.draw, 1)), LAW)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(lambda u, draft_probs, target_probs: draft_probs <= target_probs, id="no noise"),
        pytest.param(lambda u, draft_probs, target_probs: u <= target_probs, id="no draft law"),
        pytest.param(lambda u, draft_probs, target_probs: u <= draft_probs / target_probs, id="upside down"),
    ],
)
def test_another_rule_of_acceptance_is_caught(rule: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{RULES}.accepts", rule)
    assert_biased(first_two(paths(drafter.draw, 1)), LAW)


def test_dropping_a_token_for_its_own_confidence_is_caught_and_stopping_after_it_is_exact() -> None:
    def dropping(prefixes: Prefixes) -> list[Path]:
        return [(token,) if draft_prob(token) >= UNSURE else () for token in drafter.draw(prefixes)]

    def stopping(prefixes: Prefixes) -> list[Path]:
        return [path[:1] if draft_prob(path[0]) < UNSURE else path for path in paths(drafter.draw, 2)(prefixes)]

    assert_biased(first_two(dropping), LAW)
    assert_exact(first_two(stopping), LAW)


def test_choosing_a_path_by_its_content_is_caught_and_by_its_draw_is_exact() -> None:
    def both(prefixes: Prefixes) -> list[tuple[DraftToken, DraftToken]]:
        return list(zip(drafter.draw(prefixes), drafter.draw(redrawn(prefixes)), strict=True))

    assert_biased(first_two(lambda prefixes: [(max(pair, key=draft_prob),) for pair in both(prefixes)]), LAW)
    assert_exact(first_two(lambda prefixes: [(pair[prefixes.base[0] % 2],) for pair in both(prefixes)]), LAW)


def test_choosing_a_proposer_by_content_is_caught_and_by_the_prefix_is_exact() -> None:
    def both(prefixes: Prefixes) -> list[tuple[DraftToken, DraftToken]]:
        return list(zip(drafter.draw(prefixes), other_drafter.draw(prefixes), strict=True))

    def by_prefix(prefixes: Prefixes) -> list[Path]:
        return [(pair[last % 2],) for pair, last in zip(both(prefixes), prefixes.last.tolist(), strict=True)]

    assert_biased(first_two(lambda prefixes: [(max(pair, key=draft_prob),) for pair in both(prefixes)]), LAW)
    assert_exact(first_two(by_prefix), LAW)


def test_one_hot_and_coupled_drafts_may_be_chosen_by_content() -> None:
    def even_only(prefixes: Prefixes) -> list[Path]:
        return [(token,) if token.token_id % 2 == 0 else () for token in coupled(prefixes)]

    assert_exact(first_two(even_only, mode=COUPLED), LAW)
    assert_exact(first_two(even_only, mode=RATIO), LAW)


def test_a_guess_submitted_as_a_draft_is_caught() -> None:
    whole = Drafter(num_kept=VOCAB)  # a guess has this law, but it was not drawn apart from the RESIDUAL noise

    def guessed(prefixes: Prefixes) -> list[Path]:
        laws = whole.laws()
        return [
            (DraftToken(guesses[0], LawKind.SPARSE, laws[last]),)
            for guesses, last in zip(whole.guess(prefixes, 1), prefixes.last.tolist(), strict=True)
        ]

    assert_biased(first_two(guessed), LAW)


def test_skipping_an_impossible_draft_token_is_caught_and_rejecting_it_is_exact() -> None:
    sampling = SamplingParams(top_k=2)
    possible = (TARGET.topk(2).values[:, 1:] <= TARGET).tolist()

    def skipping(prefixes: Prefixes) -> list[Path]:
        tokens = drafter.draw(prefixes)
        return [(t,) if possible[last][t.token_id] else () for t, last in zip(tokens, prefixes.last, strict=True)]

    assert_biased(first_two(skipping, sampling), joint_law(sampling))
    assert_exact(first_two(paths(drafter.draw, 1), sampling), joint_law(sampling))


def test_parallel_samples_are_independent_and_sharing_a_drafted_token_is_caught() -> None:
    """Pairs of samples of one prompt: their first tokens together have the product of the laws."""

    def drawn_once_for_two(prefixes: Prefixes) -> list[DraftToken]:
        return drafter.draw(replace(prefixes, samples=prefixes.samples // 2))

    first = LAW.sum(axis=1)
    pair_law = first[:, None] * first
    for drafting in (no_drafts, paths(drafter.draw, 1)):
        assert_exact(first_two(drafting)[:, 0].reshape(-1, 2), pair_law)
    assert_biased(first_two(paths(drawn_once_for_two, 1))[:, 0].reshape(-1, 2), pair_law)


def test_coupled_text_is_the_same_with_and_without_drafts() -> None:
    plain = first_two(no_drafts, mode=COUPLED)
    for drafting in (paths(coupled, 2), paths(one_hot, 3), paths(drafter.draw, 1)):
        assert torch.equal(torch.from_numpy(first_two(drafting, mode=COUPLED)), torch.from_numpy(plain))
