"""The drafter as a whole, on a scripted model: what it offers, when, and what it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_svc.events import Closed, StreamEnded, Updated
from slipstream.errors import Exhausted, InvalidRequest, VocabularyMismatch
from slipstream.exchange import LAW_TOTAL, Commit, Draft, LawKind, SequenceFailure, Update
from slipstream.request import FinishReason, SequenceRequest, VerificationMode
from slipstream.sampling.draft_law import as_law, sparse_laws
from slipstream.sampling.philox import derive_key
from slipstream.sampling.target_law import shape_logits
from tests.drafter_svc.scripted import (
    STREAM,
    VOCAB,
    ScriptedVerifier,
    Setup,
    context_logits,
    drafts_in,
    request,
)

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
MODES = [(0.0, RATIO), (1.0, RATIO), (0.0, COUPLED), (1.0, COUPLED)]


def contexts(opened: Sequence[int], draft: Draft) -> list[list[int]]:
    """What stands before each token of a draft that builds on `opened`."""
    ids = [token.token_id for token in draft.tokens]
    return [[*opened, *ids[:i]] for i in range(len(ids))]


def kinds(draft: Draft) -> str:
    return "".join("ahs"[token.kind] for token in draft.tokens)


def check_laws(opened: Sequence[int], draft: Draft, asked: SequenceRequest) -> None:
    """Every drawn token follows the scripted model's law at its place, and only known ones stand before."""
    assert re.fullmatch("a*[hs]+", kinds(draft))
    for token, context in zip(draft.tokens, contexts(opened, draft), strict=True):
        logits = context_logits(context)
        if token.law is not None:
            shaped = shape_logits(torch.tensor(logits)[None], [asked.sampling])
            (ids,), (counts,) = sparse_laws(shaped, 8)
            expected = as_law(ids, counts)
            assert np.array_equal(token.law.token_ids, expected.token_ids)
            assert np.array_equal(token.law.counts, expected.counts)
            assert token.law.counts.sum(dtype=np.int64) == LAW_TOTAL
            assert token.law.probability(token.token_id) > 0
        elif token.kind is LawKind.ONE_HOT and asked.sampling.greedy:
            assert token.token_id == logits.argmax()


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


def test_all_rows_of_a_step_go_through_one_forward_pass() -> None:
    setup = Setup(max_prefill_tokens=100)
    for i in range(4):
        setup.open(request(sequence_id=i, fan_out=0))
    setup.drafts()
    assert [len(chunks) for chunks in setup.runner.forwards] == [4, 4, 4]


def test_a_long_prompt_is_fed_in_chunks_beside_sequences_that_go_on_drafting() -> None:
    setup = Setup(max_prefill_tokens=8, num_blocks=1000)
    opened = request(sequence_id=1, temperature=0.0)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    verifier.insert(setup.drafts())
    setup.open(request([3] * 400, sequence_id=2))
    for _ in range(6):
        setup.commit(verifier.run_pass())
        for _ in range(4):
            verifier.insert([draft for draft in drafts_in(setup.drafter.step() or []) if draft.sequence_id == 1])
    assert len(verifier.committed) == 5 + 6 * 4
    busy = [chunks for chunks in setup.runner.forwards if any(len(chunk.token_ids) < 8 for chunk in chunks)]
    assert any(len(chunk.token_ids) == 8 for chunks in busy for chunk in chunks)
    assert all(len(chunk.token_ids) <= 8 for chunks in busy for chunk in chunks)
    assert any(draft.sequence_id == 2 for draft in setup.drafts())


def test_rows_never_exceed_their_limit() -> None:
    setup = Setup(max_rows=3)
    for i in range(6):
        setup.open(request(sequence_id=i))
    assert {draft.sequence_id for draft in setup.drafts()} == set(range(6))
    assert max(len(chunks) for chunks in setup.runner.forwards) == 3


def test_rows_that_a_commit_killed_are_gone_in_the_next_step() -> None:
    setup = Setup()
    setup.open(request(fan_out=8, num_draft_tokens=6))
    while len(setup.runner.forwards) < 9:
        setup.drafter.step()
    assert len(setup.runner.forwards[-1]) > 4
    setup.commit(Commit(7, 5, (int(context_logits([1, 2, 3, 4, 5]).argmin()),)))
    setup.drafter.step()
    assert len(setup.runner.forwards[-1]) == 1


def test_the_kv_of_dead_branches_is_released_at_once_and_all_of_it_at_the_end() -> None:
    setup = Setup()
    setup.open(request(fan_out=8, num_draft_tokens=9))
    setup.drafts()
    before = setup.drafter.info().kv_blocks_used
    setup.commit(Commit(7, 5, (int(context_logits([1, 2, 3, 4, 5]).argmin()),)))
    assert setup.drafter.info().kv_blocks_used <= 2 < before
    setup.drafts()
    setup.drafter.handle(Closed(STREAM, 7))
    assert setup.drafter.info().kv_blocks_used == 0
    assert setup.drafts() == []


def test_a_stream_that_ends_frees_its_sequences_and_no_others() -> None:
    setup = Setup()
    setup.open(request(), stream=1)
    setup.open(request(), stream=2)
    setup.outputs()
    setup.drafter.handle(StreamEnded(1))
    assert setup.drafter.info().num_sequences == 1
    setup.commit(Commit(7, 5, (1,)), stream=2)
    assert {stream for stream, _ in setup.outputs()} == {2}
    setup.drafter.handle(StreamEnded(2))
    assert setup.drafter.info().kv_blocks_used == 0


def test_the_last_commit_frees_the_sequence() -> None:
    setup = Setup()
    setup.open(request())
    setup.drafts()
    setup.commit(Commit(7, 5, (1,), finish_reason=FinishReason.STOP))
    assert (setup.drafter.info().num_sequences, setup.drafter.info().kv_blocks_used) == (0, 0)


def test_stale_duplicate_contradicting_and_unknown_commits_change_nothing() -> None:
    setup = Setup()
    opened = request()
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    verifier.insert(setup.drafts())
    commit = verifier.run_pass()
    setup.commit(commit)
    setup.drafts()
    setup.commit(commit, Commit(7, 2, (3, 4)), Commit(7, 5, (11, 11, 11, 11, 11, 11, 11)), Commit(99, 5, (1,)))
    assert setup.drafts() == []


def test_commits_out_of_order_end_where_those_in_order_do() -> None:
    def run(order: Sequence[int]) -> list[int]:
        setup = Setup()
        setup.open(request(temperature=0.0))
        setup.drafts()
        commits = [Commit(7, 5, (8,)), Commit(7, 6, (9, 10)), Commit(7, 8, (11,))]
        for i in order:
            setup.commit(commits[i])
        (trunk, *_) = setup.drafts()
        return [trunk.base, *(token.token_id for token in trunk.tokens)]

    assert run([0, 1, 2]) == run([2, 1, 0]) == run([1, 0, 0, 2, 1])


def test_tokens_committed_without_drafts_keep_the_path_that_foresaw_them_and_extend_it() -> None:
    setup = Setup()
    opened = request(temperature=0.0)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    first = setup.drafts()
    verifier.insert(first)
    setup.commit(verifier.run_pass(num_draft_tokens=0))
    extension = setup.drafts()[0]
    assert kinds(extension) == "aah"
    assert [t.token_id for t in extension.tokens[:2]] == [t.token_id for t in first[0].tokens[1:]]
    verifier.insert([extension])
    assert verifier.run_pass().num_accepted == 3


def test_a_draft_context_shorter_than_the_targets_ends_drafting_there_and_nothing_else() -> None:
    setup = Setup(max_model_len=16)
    opened = request(temperature=0.0)
    setup.open(opened)
    verifier = ScriptedVerifier(opened)
    passes = []
    for _ in range(20):
        drafts = setup.drafts()
        assert all(draft.base + len(draft.tokens) <= 16 for draft in drafts)
        verifier.insert(drafts)
        passes.append(verifier.run_pass())
        setup.commit(passes[-1])
    assert max(chunk.end for chunks in setup.runner.forwards for chunk in chunks) <= 16
    assert passes[0].num_draft_tokens == 3
    assert passes[-1].num_draft_tokens == 0
    assert setup.drafter.info().kv_blocks_used == 0


def test_no_draft_goes_beyond_the_output_limit() -> None:
    setup = Setup()
    setup.open(request(max_tokens=3))
    trunk, *branches = setup.drafts()
    assert len(trunk.tokens) == 2  # the third token is the verifier's own
    assert branches
    assert all(len(branch.tokens) <= 2 for branch in branches)


def test_a_token_that_the_draft_model_has_no_embedding_for_ends_drafting_and_nothing_else() -> None:
    setup = Setup()
    setup.open(request([1, 2, VOCAB]))
    assert setup.outputs() == []
    setup.open(request(sequence_id=8))
    setup.drafts()
    setup.commit(Commit(8, 5, (VOCAB + 3,)))
    assert setup.outputs() == []
    assert setup.drafter.info().kv_blocks_used == 0


@pytest.mark.parametrize("num_blocks", [3, 5, 8, 12])
def test_scarce_kv_blocks_cost_branches_then_drafts_but_never_a_stream(num_blocks: int) -> None:
    setup = Setup(num_blocks=num_blocks)
    verifiers = {}
    for i in range(3):
        opened = request(sequence_id=i, temperature=0.0, fan_out=6)
        verifiers[i] = ScriptedVerifier(opened)
        setup.open(opened)
    accepted = 0
    for turn in range(8):
        for i, verifier in verifiers.items():
            outputs = setup.outputs()
            assert not any(isinstance(message, SequenceFailure) for _, message in outputs)
            for draft in drafts_in(outputs):
                verifiers[draft.sequence_id].insert([draft])
            commit = verifier.run_pass()
            accepted += commit.num_accepted
            setup.commit(commit)
            if i == 2 and turn == 3:
                setup.drafter.handle(Closed(STREAM, 0))
    assert accepted > 0
    setup.drafter.handle(StreamEnded(STREAM))
    assert setup.drafter.info().kv_blocks_used == 0


def test_an_update_applies_from_the_next_round() -> None:
    setup = Setup()
    setup.open(request(temperature=0.0))
    setup.drafts()
    setup.drafter.handle(Updated(STREAM, Update(7, num_draft_tokens=5, fan_out=0, max_wait_us=0)))
    assert setup.drafts() == []
    setup.commit(Commit(7, 5, (int(context_logits([1, 2, 3, 4, 5]).argmin()),)))
    assert [kinds(draft) for draft in setup.drafts()] == ["hhhhh"]
    setup.drafter.handle(Updated(STREAM, Update(7, num_draft_tokens=0, fan_out=4, max_wait_us=0)))
    setup.commit(Commit(7, 6, (0,)))
    assert setup.drafts() == []


def test_a_drafter_may_grant_fewer_branches_than_are_asked_for() -> None:
    setup = Setup(max_branches=0)
    setup.open(request(temperature=0.0, fan_out=4))
    assert len(setup.drafts()) == 1
    setup.drafter.handle(Updated(STREAM, Update(7, num_draft_tokens=3, fan_out=4, max_wait_us=0)))
    setup.commit(Commit(7, 5, (int(context_logits([1, 2, 3, 4, 5]).argmin()),)))
    assert len(setup.drafts()) == 1, "the path that comes next, and nothing ahead of it"


@pytest.mark.parametrize(
    "bad, error, words",
    [
        ({"vocabulary_hash": "b" * 64}, VocabularyMismatch, ["a" * 64, "b" * 64, "scripted"]),
        ({"vocabulary_hash": ""}, VocabularyMismatch, ["not given"]),
        ({"proposers": ("eagle3",)}, InvalidRequest, ["eagle3", "draft_model"]),
        ({"proposers": ()}, InvalidRequest, ["draft_model"]),
        ({"prompt": [1, -4]}, InvalidRequest, ["-4"]),
    ],
)
def test_an_open_that_cannot_be_served_fails_by_name_and_alone(
    bad: dict[str, object], error: type[Exception], words: list[str]
) -> None:
    setup = Setup()
    setup.open(request(**bad))  # type: ignore[arg-type]
    setup.open(request(sequence_id=8))
    (_, failure), *rest = setup.outputs()
    assert isinstance(failure, SequenceFailure)
    assert isinstance(failure.error, error)
    assert failure.sequence_id == 7
    assert all(word in str(failure.error) for word in words)
    assert drafts_in(rest)


def test_more_sequences_than_there_may_be_are_refused() -> None:
    setup = Setup(max_num_seqs=1)
    setup.open(request())
    setup.open(request(sequence_id=8))
    (_, failure), *_ = setup.outputs()
    assert isinstance(failure, SequenceFailure)
    assert isinstance(failure.error, Exhausted)


def test_a_sequence_opened_again_starts_over_under_a_later_epoch_only() -> None:
    setup = Setup()
    setup.open(request())
    setup.drafts()
    setup.open(request(epoch=0))
    ((_, failure),) = setup.outputs()
    assert isinstance(failure, SequenceFailure)
    assert "epoch" in str(failure.error)
    setup.open(request([1, 2, 3, 4, 5, 6], epoch=1, nonce=9))
    drafts = setup.drafts()
    assert {draft.base for draft in drafts} == {6}
    assert {draft.draw >> 32 for draft in drafts} == {1}
    assert setup.drafter.info().num_sequences == 1


def test_a_batch_says_how_long_it_was_computed_and_held() -> None:
    ticks = iter(range(1000))
    setup = Setup(clock=lambda: next(ticks) * 0.001)
    setup.open(request(fan_out=0, num_draft_tokens=2))
    ((_, batch),) = setup.outputs()
    assert not isinstance(batch, SequenceFailure)
    assert 0 < batch.draft_us < batch.held_us


@settings(max_examples=25, deadline=None)
@given(
    schedule=st.lists(st.integers(0, 12), min_size=4, max_size=20),
    mode=st.sampled_from(MODES),
    blocks=st.sampled_from([24, 80]),
)
def test_whatever_the_order_of_steps_and_commits_drafts_fit_the_committed_prefix(
    schedule: list[int], mode: tuple[float, VerificationMode], blocks: int
) -> None:
    """Steps cut short by commits of drafted and others' tokens: laws stay right, the tree takes them, nothing leaks."""
    setup = Setup(num_blocks=blocks)
    opened = request(temperature=mode[0], mode=mode[1])
    setup.open(opened)
    verifier = ScriptedVerifier(opened, partial(context_logits, salt=1, spread=1.0))
    for action in schedule:
        if action < 7:
            drafts = drafts_in(setup.drafter.step() or [])
            for draft in drafts:
                check_laws(verifier.committed, draft, opened)
            verifier.insert(drafts)
        elif action < 10:
            setup.commit(verifier.run_pass(num_draft_tokens=(3, 1, 0)[action - 7]))
        else:
            setup.commit(verifier.commit_others(action - 8))
    verifier.insert(setup.drafts())
    assert verifier.tree.best_path(3, opened.proposers).tokens
    setup.drafter.handle(Closed(STREAM, 7))
    assert setup.drafter.info().kv_blocks_used == 0


def test_it_runs_ahead_while_few_enough_sequences_are_open() -> None:
    setup = Setup(most_ahead=1)
    setup.open(request(temperature=0.0, fan_out=4))
    assert len(setup.drafts()) == 5
    setup.open(request(sequence_id=8, temperature=0.0, fan_out=4))
    assert len(setup.drafts()) == 1
    setup.drafter.handle(Closed(STREAM, 8))
    setup.commit(ScriptedVerifier(request(temperature=0.0)).commit_others(1))
    assert len(setup.drafts()) > 1
