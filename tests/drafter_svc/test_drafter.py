"""The drafter as a whole, on a scripted model: what it offers, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from slipstream.exchange import Commit, Draft, LawKind, SequenceFailure
from slipstream.request import VerificationMode
from slipstream.sampling.philox import derive_key
from tests.drafter_svc.draft_laws import check_laws, contexts, kinds
from tests.drafter_svc.scripted import (
    ScriptedVerifier,
    Setup,
    context_logits,
    request,
)

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
MODES = [(0.0, RATIO), (1.0, RATIO), (0.0, COUPLED), (1.0, COUPLED)]


@pytest.mark.parametrize("temperature, mode", MODES)
def test_a_draft_model_equal_to_the_target_is_accepted_whole_and_always_there_in_time(
    temperature: float, mode: VerificationMode
) -> None:
    setup = Setup()
    opened = request(temperature=temperature, mode=mode)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    for _ in range(12):
        verifier.insert(setup.drafts())
        commit = verifier.run_pass()
        assert commit.hit
        if not (temperature and mode is RATIO):  # a law of counts is not quite the target's
            assert commit.num_accepted == opened.num_draft_tokens
        setup.commit(commit)


@pytest.mark.parametrize("temperature, mode", [(0.0, RATIO), (1.0, COUPLED)])
def test_under_penalties_and_bad_words_the_drafts_are_still_accepted_whole(
    temperature: float, mode: VerificationMode
) -> None:
    plain = request(temperature=temperature, mode=mode)
    ruled = replace(
        plain.sampling, frequency_penalty=1.5, repetition_penalty=1.3, bad_words=((7,), (2, 3)), logit_bias=((4, 1.0),)
    )
    opened = replace(plain, sampling=ruled)
    setup, verifier = Setup(), ScriptedVerifier(opened)
    setup.open(opened)
    for _ in range(12):
        verifier.insert(setup.drafts())
        commit = verifier.run_pass()
        assert commit.num_accepted == opened.num_draft_tokens
        setup.commit(commit)
    assert 7 not in verifier.committed[5:]


def test_after_a_hit_nothing_is_drafted_anew_for_the_position_that_is_covered() -> None:
    setup = Setup()
    opened = request(temperature=0.0)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    verifier.insert(setup.drafts())
    for _ in range(5):
        setup.commit(verifier.run_pass())
        drafts = setup.drafts()
        assert drafts, "the next outcomes are drafted for"
        assert all(kinds(draft).startswith("a") for draft in drafts)
        verifier.insert(drafts)


def test_a_miss_is_answered_by_a_path_from_the_committed_prefix_before_anything_else() -> None:
    setup = Setup()
    setup.open(request(temperature=0.0))
    first = setup.drafts()[0]
    unlikely = int(context_logits(contexts((1, 2, 3, 4, 5), first)[0]).argmin())
    setup.commit(Commit(7, 5, (unlikely,)))
    answer = setup.drafts()
    assert (answer[0].base, kinds(answer[0])) == (6, "hhh")
    assert len(answer) > 1
    assert all(kinds(draft).startswith("a") and draft.base == 6 for draft in answer[1:])
    assert answer[0].tokens[0].token_id == context_logits([1, 2, 3, 4, 5, unlikely]).argmax()


@pytest.mark.parametrize("temperature, mode", MODES)
def test_branches_are_the_path_then_another_outcome_then_a_fresh_continuation(
    temperature: float, mode: VerificationMode
) -> None:
    setup = Setup()
    setup.open(request(temperature=temperature, mode=mode, fan_out=6))
    trunk, *branches = setup.drafts()
    path = [token.token_id for token in trunk.tokens]
    assert len(branches) == 6
    outcomes = set()
    for branch in branches:
        ids = [token.token_id for token in branch.tokens]
        shared = len(ids) - 4
        assert ids[:shared] == path[:shared]
        assert shared == len(path) or ids[shared] != path[shared]
        assert kinds(branch) == "a" * (shared + 1) + kinds(trunk)
        outcomes.add((shared, ids[shared]))
    assert len(outcomes) == 6
    assert {shared for shared, _ in outcomes} >= {0, 3}


@pytest.mark.parametrize("mode", [RATIO, COUPLED])
def test_every_law_is_the_models_own_at_its_place_and_sums_to_the_fixed_total(mode: VerificationMode) -> None:
    setup = Setup()
    opened = request(mode=mode)
    setup.open(opened)
    verifier = ScriptedVerifier(opened, partial(context_logits, salt=1))
    for _ in range(20):
        prefix = list(verifier.committed)
        drafts = setup.drafts()
        for draft in drafts:
            assert draft.base == len(prefix)
            check_laws(prefix, draft, opened)
        verifier.insert(drafts)
        setup.commit(verifier.run_pass())


def test_no_draw_number_ever_stands_for_two_paths() -> None:
    setup = Setup()
    opened = request(epoch=3)
    setup.open(opened)
    verifier = ScriptedVerifier(opened, partial(context_logits, salt=2))
    draws: list[int] = []
    for turn in range(20):
        drafts = setup.drafts()
        draws += [draft.draw for draft in drafts]
        verifier.insert(drafts)
        setup.commit(verifier.run_pass(num_draft_tokens=turn % 3))
    assert len(set(draws)) == len(draws) > 20
    assert {draw >> 32 for draw in draws} == {3}


def drafted(drafts: Sequence[Draft]) -> list[list[int]]:
    """The drawn, not the guessed, tokens of the paths that start at the committed prefix."""
    return [
        [token.token_id for token in draft.tokens] for draft in drafts if draft.tokens[0].kind is not LawKind.ASSUMED
    ]


def test_in_ratio_mode_no_drafted_token_depends_on_the_noise_that_guesses_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trunks(seed: int, mode: VerificationMode) -> list[list[int]]:
        # The key of the DRAFT noise is held, so the seed only moves the RESIDUAL noise.
        monkeypatch.setattr("drafter_svc.proposers.proposer.derive_key", lambda seed, nonce: derive_key(1, nonce))
        setup = Setup()
        setup.open(request(seed=seed, mode=mode, num_draft_tokens=8, fan_out=3))
        return drafted(setup.drafts())

    assert trunks(1, RATIO) == trunks(2, RATIO)
    assert trunks(1, COUPLED) != trunks(2, COUPLED)


def test_which_positions_get_branches_does_not_depend_on_what_was_drafted_in_ratio_mode() -> None:
    def positions(salt: int) -> list[int]:
        setup = Setup(logits=partial(context_logits, salt=salt, spread=0.5 + salt))
        setup.open(request(fan_out=5))
        return sorted(kinds(draft).count("a") for draft in setup.drafts())

    assert positions(0) == positions(1) == positions(2)


def test_a_sequence_is_drafted_alike_alone_and_among_others() -> None:
    def run(others: int) -> list[tuple[int, list[tuple[int, LawKind]]]]:
        setup = Setup()
        for i in range(others):
            setup.open(request([1] * (3 + 9 * i), sequence_id=100 + i, seed=i))
        setup.open(request())
        drafts = [draft for draft in setup.drafts() if draft.sequence_id == 7]
        return sorted((draft.draw, [(t.token_id, t.kind) for t in draft.tokens]) for draft in drafts)

    assert run(0) == run(4)


def test_a_batch_says_how_long_it_was_computed_and_held() -> None:
    ticks = iter(range(1000))
    setup = Setup(clock=lambda: next(ticks) * 0.001)
    setup.open(request(fan_out=0, num_draft_tokens=2))
    ((_, batch),) = setup.outputs()
    assert not isinstance(batch, SequenceFailure)
    assert 0 < batch.draft_us < batch.held_us
