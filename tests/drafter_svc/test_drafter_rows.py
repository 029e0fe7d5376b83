"""Which rows the drafter feeds in a step, how many, and the KV that they hold."""

from __future__ import annotations

import pytest

from drafter_svc.events import Closed, StreamEnded, Updated
from slipstream.exchange import Commit, SequenceFailure, Update
from tests.drafter_svc.draft_laws import kinds
from tests.drafter_svc.scripted import (
    STREAM,
    ScriptedVerifier,
    Setup,
    context_logits,
    drafts_in,
    request,
)


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


def test_it_runs_ahead_while_few_enough_sequences_are_open() -> None:
    setup = Setup(most_ahead=1)
    setup.open(request(temperature=0.0, fan_out=4))
    assert len(setup.drafts()) == 5
    other = request(sequence_id=8, temperature=0.0, fan_out=4)
    setup.open(other)
    setup.commit(ScriptedVerifier(other).commit_others(1))
    assert len(setup.drafts()) == 1
    setup.drafter.handle(Closed(STREAM, 8))
    setup.commit(ScriptedVerifier(request(temperature=0.0)).commit_others(1))
    assert len(setup.drafts()) > 1


def test_among_many_a_prompt_is_fed_and_drafted_for_from_its_first_commit_on() -> None:
    setup = Setup(most_ahead=1, max_prefill_tokens=64)
    setup.open(request(temperature=0.0))
    setup.drafts()
    late = request((5, 4, 3, 2, 1, 2, 3), sequence_id=8, temperature=0.0)
    setup.open(late)
    assert not setup.drafts()
    assert [len(chunk.token_ids) for chunk in setup.runner.forwards[-1]] == [6]
    setup.commit(ScriptedVerifier(late).commit_others(1))
    assert {draft.sequence_id for draft in setup.drafts()} == {8}
    setup.open(request((5, 4, 3, 2), sequence_id=9, temperature=0.0))
    for sequence_id in (7, 8):
        setup.drafter.handle(Closed(STREAM, sequence_id))
    assert {draft.sequence_id for draft in setup.drafts()} == {9}, "alone it waits for nothing"


def test_it_rests_while_too_many_are_open() -> None:
    setup = Setup(most_ahead=1, most_drafted=1)
    opened = request(temperature=0.0, fan_out=0)
    verifier = ScriptedVerifier(opened)
    setup.open(opened)
    verifier.insert(setup.drafts())
    setup.open(request(sequence_id=8, temperature=0.0))
    setup.commit(verifier.run_pass())
    assert not setup.drafts()
    setup.drafter.handle(Closed(STREAM, 8))
    assert {draft.sequence_id for draft in setup.drafts()} == {opened.sequence_id}
