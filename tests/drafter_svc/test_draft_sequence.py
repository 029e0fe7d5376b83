"""One sequence's state, driven by hand: which path stands after a commit, with which KV, and what may begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from drafter_svc.draft_sequence import DraftSequence
from drafter_svc.enumeration import Outcome
from drafter_svc.path import Path
from drafter_svc.proposers.proposer import Limits, Proposal
from slipstream.cache.block_pool import BlockPool, OutOfBlocks
from slipstream.exchange import Commit, DraftToken, LawKind
from tests.drafter_svc.scripted import VOCAB, request

PROMPT = (1, 2, 3, 4, 5)


class Driven:
    """A sequence whose drafts the test chooses."""

    def __init__(self, num_blocks: int = 32, fan_out: int = 4) -> None:
        self.pool = BlockPool(num_blocks, 4)
        limits = Limits(num_blocks=num_blocks, block_size=4, max_model_len=100, vocab_size=VOCAB)
        self.sequence = DraftSequence(request(PROMPT, temperature=0.0, fan_out=fan_out), self.pool, limits, 0.0)

    def feed(self, path: Path, *token_ids: int, outcomes: Sequence[int] = (0, 6, 7, 8)) -> None:
        """Draws these tokens one step after the other."""
        for token_id in token_ids:
            end = self.sequence.feeding.start(path) + self.sequence.num_to_feed(path)
            path.table.grow(end)
            self.sequence.take(path, [Proposal(DraftToken(token_id, LawKind.ONE_HOT), tuple(outcomes))], end)

    def branch(self, num_accepted: int, rank: int) -> Path:
        outcome = next(o for o in self.sequence.pending if (o.num_accepted, o.rank) == (num_accepted, rank))
        begun = self.sequence.begin_branch(outcome)
        assert begun is not None
        return begun[0]

    def commit(self, *token_ids: int, num_accepted: int = 0, num_draft_tokens: int = 0, proposer: str = "") -> None:
        base = len(self.sequence.committed)
        self.sequence.commit(Commit(7, base, token_ids, num_accepted, num_draft_tokens, proposer), received=1.0)


def ids(path: Path) -> list[int]:
    return [token.token_id for token in path.tokens]


@pytest.fixture
def driven() -> Driven:
    """The path 6 7 8 drawn and sent, the next place looked at, one branch at each of (0, 7) and (3, 6)."""
    made = Driven()
    made.feed(made.sequence.trunk, 6, 7, 8)
    made.sequence.pending = [Outcome(0, 2, 0.2), Outcome(3, 1, 0.4)]
    made.feed(made.sequence.trunk, 0)
    assert len(list(made.sequence.drafts())) == 1
    return made


def test_the_branch_that_came_true_is_the_new_trunk_with_its_kv_and_what_was_sent(driven: Driven) -> None:
    branch = driven.branch(3, 1)
    driven.feed(branch, 9, 10, 11)
    assert [ids_and_kinds[1] for ids_and_kinds in sent(driven)] == ["aaaahhh"]
    driven.commit(6, 7, 8, 6)
    assert driven.sequence.trunk is branch
    assert (ids(branch), branch.is_complete, branch.has_unsent) == ([9, 10, 11], True, False)
    assert driven.sequence.feeding.token_ids(branch) == [11]
    assert list(driven.sequence.drafts()) == []


def sent(driven: Driven) -> list[tuple[list[int], str]]:
    drafts = list(driven.sequence.drafts())
    return [([t.token_id for t in d.tokens], "".join("ahs"[t.kind] for t in d.tokens)) for d in drafts]


def test_a_branch_that_is_half_drawn_when_it_comes_true_is_finished_not_begun_anew(driven: Driven) -> None:
    branch = driven.branch(0, 2)
    driven.feed(branch, 9)
    driven.commit(8)
    assert driven.sequence.trunk is branch
    assert driven.sequence.trunk_has_work()
    draw = branch.draw
    driven.feed(branch, 10, 11)
    assert sent(driven) == [([9, 10, 11], "hhh")]
    assert branch.draw == draw


def test_a_miss_keeps_the_kv_of_what_agreed_and_releases_the_rest(driven: Driven) -> None:
    driven.branch(0, 2)
    driven.commit(6, 7, 3)
    assert ids(driven.sequence.trunk) == []
    assert driven.sequence.feeding.token_ids(driven.sequence.trunk) == [3]
    assert driven.pool.num_used == 2
    assert driven.sequence.branches == []


def test_a_commit_that_leaves_the_trunk_early_is_fed_from_there(driven: Driven) -> None:
    driven.commit(6, 3, 7, 8)
    assert driven.sequence.feeding.token_ids(driven.sequence.trunk) == [3, 7, 8]


def test_a_commit_along_the_trunk_keeps_trunk_and_the_branches_that_leave_it_later(driven: Driven) -> None:
    early, late = driven.branch(0, 2), driven.branch(3, 1)
    driven.feed(late, 9)
    driven.commit(6)
    assert ids(driven.sequence.trunk) == [7, 8]
    assert driven.sequence.branches == [late]
    assert (ids(late), late.num_shared) == ([7, 8, 6, 9], 2)
    assert early.table.block_ids == []
    assert driven.sequence.trunk_has_work()


def test_a_guess_never_becomes_a_draft_when_the_trunk_is_used_up(driven: Driven) -> None:
    branch = driven.branch(3, 1)
    driven.feed(branch, 9, 10, 11)
    sent(driven)
    driven.commit(6, 7, 8)
    assert (ids(driven.sequence.trunk), driven.sequence.branches) == ([], [branch])
    driven.feed(driven.sequence.trunk, 7, 7, 7)
    assert sent(driven) == [([7, 7, 7], "hhh")]


@pytest.mark.parametrize("fed_past_the_guess", [False, True])
def test_a_branch_whose_guess_the_trunk_drew_too_is_the_trunk_after_it(
    driven: Driven, fed_past_the_guess: bool
) -> None:
    branch = driven.branch(3, 1)
    driven.feed(branch, 9, 10, 11)
    sent(driven)
    driven.commit(6)
    driven.feed(driven.sequence.trunk, 6)
    if fed_past_the_guess:
        driven.feed(driven.sequence.trunk, 0)
    assert sent(driven) == [([7, 8, 6], "aah")]
    driven.commit(7, 8, 6)
    assert (driven.sequence.trunk, ids(branch), driven.sequence.branches) == (branch, [9, 10, 11], [])
    assert sent(driven) == []
    driven.sequence.release()
    assert driven.pool.num_used == 0


def test_what_is_added_to_a_path_that_was_sent_has_a_draw_number_of_its_own(driven: Driven) -> None:
    draw = driven.sequence.trunk.draw
    driven.commit(6)
    driven.feed(driven.sequence.trunk, 9)
    assert sent(driven) == [([7, 8, 9], "aah")]
    assert driven.sequence.trunk.draw > draw


def test_a_branch_whose_kv_was_taken_after_it_was_sent_still_comes_true(driven: Driven) -> None:
    branch = driven.branch(3, 1)
    driven.feed(branch, 9, 10, 11)
    sent(driven)
    driven.sequence.drop_branch(branch)
    assert branch.table.block_ids == []
    driven.commit(6, 7, 8, 6)
    assert (driven.sequence.trunk, ids(branch)) == (branch, [9, 10, 11])
    assert driven.sequence.feeding.token_ids(branch) == [6, 9, 10, 11]  # the old trunk had the rest


def test_an_unfinished_branch_whose_kv_was_taken_is_gone(driven: Driven) -> None:
    driven.sequence.drop_branch(driven.branch(0, 2))
    driven.commit(8)
    assert ids(driven.sequence.trunk) == []


def test_a_branch_begins_once_and_only_where_the_trunk_has_kv_and_candidates() -> None:
    driven = Driven()
    driven.feed(driven.sequence.trunk, 6, 7, 8)
    assert {outcome.num_accepted for outcome in driven.sequence.ready_outcomes()} <= {0, 1, 2}
    driven.feed(driven.sequence.trunk, 0)
    ready = driven.sequence.ready_outcomes()
    assert 3 in {outcome.num_accepted for outcome in ready}
    driven.sequence.begin_branch(ready[0])
    assert ready[0] not in driven.sequence.ready_outcomes()


def test_no_more_branches_begin_than_the_fan_out() -> None:
    driven = Driven(fan_out=1)
    driven.feed(driven.sequence.trunk, 6, 7, 8)
    driven.feed(driven.sequence.trunk, 0)
    (outcome,) = driven.sequence.ready_outcomes()
    driven.sequence.begin_branch(outcome)
    assert driven.sequence.ready_outcomes() == []


def test_a_branch_without_blocks_for_it_changes_nothing() -> None:
    driven = Driven(num_blocks=2)
    driven.feed(driven.sequence.trunk, 6, 7, 8)
    driven.feed(driven.sequence.trunk, 0)
    ready = driven.sequence.ready_outcomes()
    with pytest.raises(OutOfBlocks):
        driven.sequence.begin_branch(next(outcome for outcome in ready if outcome.num_accepted < 3))
    assert driven.sequence.ready_outcomes() == ready
    assert driven.sequence.branches == []


def test_history_learns_from_passes_of_its_own_drafts_only(driven: Driven) -> None:
    before = driven.sequence.history.acceptance(0)
    driven.commit(3, num_draft_tokens=3, proposer="ngram")
    assert driven.sequence.history.acceptance(0) == before
    driven.commit(3, num_draft_tokens=3, proposer="draft_model")
    assert driven.sequence.history.acceptance(0) < before


def test_a_starved_sequence_has_no_work_and_no_kv(driven: Driven) -> None:
    driven.branch(0, 2)
    driven.sequence.starve()
    assert driven.pool.num_used == 0
    assert not driven.sequence.trunk_has_work()
    assert driven.sequence.ready_outcomes() == []
    driven.commit(6)
    driven.sequence.starved = False
    assert driven.sequence.feeding.token_ids(driven.sequence.trunk) == [*PROMPT, 6, 7, 8]


@pytest.mark.parametrize(("ignore_eos", "forbidden"), [(False, {3, 9}), (True, {3})])
def test_rules_follow_the_commits_and_know_what_would_end_the_output(ignore_eos: bool, forbidden: set[int]) -> None:
    limits = Limits(num_blocks=8, block_size=4, max_model_len=100, vocab_size=VOCAB, eos_token_ids=(9,))
    asked = request(PROMPT)
    sampling = replace(asked.sampling, min_tokens=2, stop_token_ids=(3,), ignore_eos=ignore_eos)
    sequence = DraftSequence(replace(asked, sampling=sampling), BlockPool(8, 4), limits, 0.0)
    assert sequence.rules is not None
    assert {entry.token_id for entry in sequence.rules.row_entries(())} == forbidden
    assert sequence.rules.row_entries((6, 6)) == []
    sequence.commit(Commit(7, len(PROMPT), (6, 7), 0, 0, ""), received=1.0)
    assert sequence.rules.row_entries(()) == []
