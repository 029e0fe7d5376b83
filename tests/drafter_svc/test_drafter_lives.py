"""Sequences of a drafter from their opening to their end, whatever comes in between and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_svc.events import Closed, StreamEnded
from slipstream.errors import Exhausted, InvalidRequest, VocabularyMismatch
from slipstream.exchange import Commit, SequenceFailure
from slipstream.request import FinishReason, VerificationMode
from tests.drafter_svc.draft_laws import check_laws, kinds
from tests.drafter_svc.scripted import (
    STREAM,
    VOCAB,
    ScriptedVerifier,
    Setup,
    context_logits,
    drafts_in,
    request,
)

MODES = [(temperature, mode) for temperature in (0.0, 1.0) for mode in VerificationMode]


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
