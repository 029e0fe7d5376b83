"""One path: what it takes, sends and keeps when its first tokens are committed."""

from __future__ import annotations

from drafter_svc.path import Path
from drafter_svc.proposers.proposer import Proposal
from slipstream.cache.block_pool import BlockPool
from slipstream.cache.block_table import BlockTable
from slipstream.exchange import DraftToken, LawKind


def proposal(token_id: int, *outcomes: int) -> Proposal:
    return Proposal(DraftToken(token_id, LawKind.ONE_HOT), outcomes)


def path(*token_ids: int, goal: int = 3) -> Path:
    made = Path(BlockTable(BlockPool(4, 4)), draw=0, goal=goal)
    made.take([proposal(token_id, token_id, token_id + 1) for token_id in token_ids])
    return made


def test_a_path_takes_tokens_up_to_its_goal_and_one_place_of_outcomes_more() -> None:
    full = path(1, 2, 3, 4, 5)
    assert [token.token_id for token in full.tokens] == [1, 2, 3]
    assert full.outcomes == [(1, 2), (2, 3), (3, 4), (4, 5)]


def test_the_place_past_the_end_is_overwritten_when_the_path_grows() -> None:
    full = path(1, 2, 3, 4)
    full.goal = 4
    full.take([proposal(9, 9, 10)])
    assert full.outcomes[3:] == [(9, 10)]


def test_a_path_is_sent_once_and_then_only_assumed() -> None:
    grown = path(1, 2, goal=2)
    assert [token.kind for token in grown.send()] == [LawKind.ONE_HOT] * 2
    assert not grown.has_unsent
    grown.goal = 3
    grown.take([proposal(3)])
    assert [token.kind for token in grown.send()] == [LawKind.ASSUMED, LawKind.ASSUMED, LawKind.ONE_HOT]


def test_committed_tokens_leave_the_path_with_all_that_belongs_to_them() -> None:
    sent = path(1, 2, 3, 4)
    sent.send()
    sent.advance(2)
    assert [token.token_id for token in sent.tokens] == [3]
    assert sent.outcomes == [(3, 4), (4, 5)]
    assert (sent.goal, sent.num_sent, sent.num_shared) == (1, 1, 0)


def test_agreement_is_counted_up_to_the_first_difference_or_the_shorter_end() -> None:
    assert [path(1, 2, 3).common_length(ids) for ids in ([], [1], [1, 9], [1, 2, 3, 4])] == [0, 1, 1, 3]


def test_candidates_lead_away_from_the_path() -> None:
    full = path(1, 2, 3, 4)
    assert [full.candidates(i) for i in (0, 2, 3, 4)] == [(2,), (4,), (4, 5), ()]


def test_released_kv_leaves_the_tokens() -> None:
    full = path(1, 2, 3)
    full.table.grow(9)
    full.num_computed = 9
    full.release()
    assert (full.num_computed, len(full.table.block_ids), len(full.tokens)) == (0, 0, 3)


def test_the_token_that_makes_a_path_unlikely_is_its_last() -> None:
    made = Path(BlockTable(BlockPool(4, 4)), draw=0, goal=4)
    confidences = (0.9, 0.5, 0.5, 0.9)
    made.take([Proposal(DraftToken(i, LawKind.ONE_HOT), (i,), c) for i, c in enumerate(confidences)], stop_below=0.4)
    assert [token.token_id for token in made.tokens] == [0, 1, 2]
    assert made.is_complete


def test_confidence_starts_anew_with_a_commit() -> None:
    made = Path(BlockTable(BlockPool(4, 4)), draw=0, goal=4)
    made.take([Proposal(DraftToken(1, LawKind.ONE_HOT), (1,), 0.5)], stop_below=0.4)
    made.advance(1)
    made.take([Proposal(DraftToken(2, LawKind.ONE_HOT), (2,), 0.5)], stop_below=0.4)
    assert not made.is_complete
