"""N-gram drafts of one sequence: always enough ahead, never sent without need."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.control.evidence import Trial
from gateway.proposers.ngram import NgramDrafts
from slipstream.exchange import Commit, Draft, LawKind
from slipstream.proposers.suffix_index import SuffixIndex
from slipstream.proposers.suffix_text import SuffixText
from slipstream.wire.drafts import draft_from_wire
from slipstream.wire.v1 import exchange_pb2


class Started:
    """Drafts with K = 2 for a sequence that starts with these tokens; `sent` is what the verifier got."""

    def __init__(self, token_ids: Sequence[int], *, is_alone: bool = True) -> None:
        self.sent: list[Draft] = []
        self.committed = list(token_ids)
        self.drafts = NgramDrafts(7, 2, self._receive)
        self.drafts.redraft(2, is_alone=is_alone)
        self.drafts.start(self.committed)

    def commit(self, *token_ids: int) -> None:
        self.drafts.observe(Commit(7, len(self.committed), token_ids))
        self.committed += token_ids

    def _receive(self, draft: exchange_pb2.Draft) -> None:
        self.sent.append(draft_from_wire(draft))

    @property
    def last_path(self) -> list[int]:
        return [token.token_id for token in self.sent[-1].tokens]


def test_it_drafts_from_the_prompt_at_once_for_two_passes() -> None:
    started = Started([1, 2, 3, 4, 1, 2])
    (draft,) = started.sent
    assert (draft.sequence_id, draft.base, draft.proposer, draft.draw) == (7, 6, "ngram", 0)
    assert started.last_path == [3, 4, 1, 2, 3]
    assert {token.kind for token in draft.tokens} == {LawKind.ONE_HOT}


def test_a_path_that_came_true_is_prolonged() -> None:
    started = Started([1, 2, 3, 4, 1, 2])
    started.commit(3, 4, 1)
    assert started.last_path == [2, 3, 4, 1, 2]
    assert (started.sent[-1].base, started.sent[-1].draw) == (9, 1)


def test_after_a_rejection_it_drafts_from_what_came_instead() -> None:
    started = Started([1, 2, 3, 9, 8, 3, 1, 2])
    started.commit(3, 9)
    assert started.last_path[:2] == [8, 3]


def test_without_a_match_it_is_silent() -> None:
    started = Started([1, 2, 3])
    started.commit(4)
    assert started.sent == []


def test_on_another_verifier_it_sends_again_what_that_one_cannot_have() -> None:
    started = Started([1, 2, 1, 2])
    started.drafts.start(started.committed)
    assert [draft.base for draft in started.sent] == [4, 4]
    assert started.sent[0].draw != started.sent[1].draw


def test_a_commit_that_a_move_has_taken_in_already_is_not_counted_twice() -> None:
    started = Started([1, 2, 3, 1, 2])
    started.drafts.start([1, 2, 3, 1, 2, 3])
    started.commit(3)
    assert started.sent[-1].base == 6


def test_beside_another_proposer_a_short_match_drafts_nothing() -> None:
    assert not Started([1, 2, 3, 4, 9, 2, 3, 4], is_alone=False).sent
    assert Started([1, 2, 3, 4, 9, 1, 2, 3, 4], is_alone=False).last_path[:2] == [9, 1]


def test_while_silent_it_reads_on_and_is_scored_and_begins_at_once_when_asked() -> None:
    sent: list[exchange_pb2.Draft] = []
    trials: list[Trial] = []
    drafts = NgramDrafts(7, 2, sent.append, on_trial=trials.append)
    drafts.redraft(0, is_alone=True)
    drafts.start([1, 2, 3, 4, 1, 2])
    drafts.observe(Commit(7, 6, (3, 4, 1, 9)))
    assert sent == []
    assert trials == [Trial(8, 3, is_long=False)]
    drafts.observe(Commit(7, 10, (1, 2)))
    drafts.redraft(2, is_alone=True)
    (draft,) = sent
    assert (draft.base, draft_from_wire(draft).tokens[0].token_id) == (12, 3)


def test_it_drafts_from_the_index_that_it_is_given() -> None:
    shared = SuffixText(100)
    shared.add([50, 51, 52, 53])
    sent: list[exchange_pb2.Draft] = []
    NgramDrafts(7, 1, sent.append, index=SuffixIndex(shared)).start([8, 50, 51])
    assert [token.token_id for token in draft_from_wire(sent[0]).tokens] == [52, 53]
