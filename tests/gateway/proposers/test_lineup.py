"""Who of a sequence's proposers drafts, and what the others cost."""

from __future__ import annotations

from typing import Any, cast

from gateway.control.drafting import Drafting
from gateway.proposers.lineup import Lineup
from gateway.proposers.ngram import NgramDrafts
from gateway.proposers.remote import RemoteDrafts
from slipstream.exchange import Commit, Update
from slipstream.wire.v1 import exchange_pb2

PROMPT = (1, 2, 3, 4, 9, 1, 2, 3, 4)
BOTH = Drafting(("ngram", "draft_model"), 2, 3, 1000)
NGRAM_ONLY = Drafting(("ngram",), 2, 0, 0)
MODEL_ONLY = Drafting(("draft_model",), 2, 3, 1000)
NOBODY = Drafting((), 0, 0, 0)


class Remote(RemoteDrafts):
    """Notes what is asked of it."""

    may_rest = False

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, token_ids: Any) -> None:
        self.calls.append(("start", tuple(token_ids)))

    def observe(self, commit: Commit) -> None:
        self.calls.append("observe")

    def update(self, update: Update) -> None:
        self.calls.append(update)

    def close(self) -> None:
        self.calls.append("close")


class Sequence:
    def __init__(self, drafting: Drafting) -> None:
        self.sent: list[exchange_pb2.Draft] = []
        self.remote = Remote()
        ngram = NgramDrafts(7, 2, self.sent.append)
        self.lineup = Lineup({"ngram": ngram, "draft_model": cast(RemoteDrafts, self.remote)})
        self.lineup.start(drafting, PROMPT)

    def redraft(self, drafting: Drafting) -> None:
        self.remote.calls.clear()
        self.lineup.redraft(drafting, 7, PROMPT)


def test_who_does_not_draft_is_closed_and_says_nothing() -> None:
    sequence = Sequence(NOBODY)
    assert (sequence.remote.calls, sequence.sent) == (["close"], [])


def test_both_draft_where_both_are_wanted() -> None:
    sequence = Sequence(BOTH)
    assert sequence.remote.calls == [("start", PROMPT)]
    assert len(sequence.sent) == 1


def test_a_drafter_that_goes_on_is_told_new_bounds() -> None:
    sequence = Sequence(BOTH)
    sequence.redraft(Drafting(("ngram", "draft_model"), 5, 1, 10))
    assert sequence.remote.calls == [Update(7, 5, 1, 10)]


def test_a_drafter_that_is_left_is_closed_and_one_that_comes_is_opened_with_what_is_committed() -> None:
    sequence = Sequence(BOTH)
    sequence.redraft(NGRAM_ONLY)
    assert sequence.remote.calls == ["close"]
    sequence.redraft(MODEL_ONLY)
    assert sequence.remote.calls == [("start", PROMPT)]


def test_n_grams_that_were_silent_have_read_on_and_begin_at_once() -> None:
    sequence = Sequence(NOBODY)
    sequence.lineup.propose(Commit(7, 9, (9, 1)))
    assert sequence.sent == []
    sequence.redraft(NGRAM_ONLY)
    (draft,) = sequence.sent
    assert (draft.base, draft.draw) == (11, 0)


def test_n_grams_draft_on_short_matches_unless_a_model_is_beside_that_need_not_be_waited_for() -> None:
    short = (5, 1, 2, 7, 8, 1, 2)
    alone, beside_who_rests, beside = Sequence(NOBODY), Sequence(NOBODY), Sequence(NOBODY)
    beside_who_rests.remote.may_rest = True
    for sequence, drafting in ((alone, NGRAM_ONLY), (beside_who_rests, BOTH), (beside, BOTH)):
        sequence.lineup.propose(Commit(7, 9, short))
        sequence.redraft(drafting)
    assert [len(sequence.sent) for sequence in (alone, beside_who_rests, beside)] == [1, 1, 0]


class Local:
    """A proposer that lives here, other than n-grams."""

    has_drafts = False

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, token_ids: Any) -> None:
        self.calls.append(("start", tuple(token_ids)))

    def observe(self, commit: Commit) -> None:
        self.calls.append("observe")

    def redraft(self, num_draft_tokens: int, *, is_alone: bool) -> None:
        self.calls.append((num_draft_tokens, is_alone))

    def close(self) -> None:
        self.calls.append("close")


def test_who_lives_here_is_told_its_own_bounds_before_it_starts_and_reads_every_commit() -> None:
    local = Local()
    lineup = Lineup({"tritonserver": local})
    lineup.start(Drafting(("tritonserver",), 2, 3, 1000), PROMPT)
    assert local.calls == [(2, True), ("start", PROMPT)]
    lineup.redraft(NOBODY, 7, PROMPT)
    lineup.propose(Commit(7, 9, (1,)))
    lineup.close()
    assert local.calls[2:] == [(0, False), "observe", "close"]
