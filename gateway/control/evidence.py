"""What final tokens have told about each proposer, for one request or one tenant's. Knows commits and trials only.

Nothing here has seen a token that was discarded: in ratio mode what decides how text is drafted on must not have
(docs/exactness.md). A commit tells how many of its own tokens were drafts; a trial compares what an n-gram proposer
would have said with tokens that became final.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from gateway.control.acceptance import Acceptance
from gateway.control.goodput import Source
from gateway.control.rate import Rate
from gateway.control.step_times import DraftTimes
from slipstream.exchange import Commit
from slipstream.proposers.ngram import NAME as NGRAM

LONG_NGRAM: Final = "ngram_long"  # n-gram drafts whose match is long enough to go before a model's
TENANT: Final = (0.99, 8.0)  # decay of a pass, and how many passes expectations are worth
REQUEST: Final = (0.95, 12.0)

_COLD_HIT: Final = {NGRAM: 0.3, LONG_NGRAM: 0.1}
_COLD_REMOTE_HIT: Final = 0.7
_COLD_LATE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Trial:
    """What an n-gram proposer would have given in one pass: scored for free against what became final."""

    num_draft_tokens: int  # 0: it had nothing to say
    num_accepted: int
    is_long: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """Who was asked elsewhere to draft for a pass, and for how many tokens."""

    proposers: Collection[str] = ()
    num_draft_tokens: int = 0
    seconds: float = 0.0  # for which a drafter has worked since the last pass


class Evidence:
    """Of each proposer. What a request shows is drawn towards its tenant's evidence, `parent`."""

    def __init__(self, parent: Evidence | None = None) -> None:
        self._parent = parent
        self._decay, self._weight = TENANT if parent is None else REQUEST
        self._acceptance: dict[str, Acceptance] = {}
        self._hits: defaultdict[str, Rate] = defaultdict(self._rate)
        self._late: defaultdict[str, Rate] = defaultdict(self._rate)
        self._waits: defaultdict[str, Rate] = defaultdict(self._rate)  # seconds of a pass that found nothing
        self._waited_for: defaultdict[str, Rate] = defaultdict(self._rate)  # tokens asked for then
        self._filled: defaultdict[str, Rate] = defaultdict(
            self._rate
        )  # tokens of drafts, as a share of those asked for

    def note_trial(self, trial: Trial) -> None:
        self._hits[NGRAM].add(trial.num_draft_tokens > 0)
        self._hits[LONG_NGRAM].add(trial.is_long)
        for name in (NGRAM, LONG_NGRAM) if trial.is_long else (NGRAM,):
            self.acceptance(name).add(trial.num_accepted, trial.num_draft_tokens)

    def note_pass(self, commit: Commit, asked: Asked) -> None:
        """One pass of a sequence."""
        for name in asked.proposers:
            if commit.proposer == name:
                self._filled[name].add(min(1.0, commit.num_draft_tokens / max(1, asked.num_draft_tokens)))
                self.acceptance(name).add(commit.num_accepted, commit.num_draft_tokens)
            elif commit.hit:
                continue  # somebody before it had drafts
            self._note_turn(name, commit, asked.num_draft_tokens)

    def fade(self, name: str) -> None:
        """A pass that it did not draft for: what this request showed counts less, what its tenant shows counts more."""
        self.acceptance(name).fade()
        self._hits[name].fade()

    def fade_to(self, name: str, passes: float) -> None:
        """What was seen of this proposer is old."""
        self.acceptance(name).fade_to(passes)
        for rates in (self._hits, self._late, self._waits, self._waited_for, self._filled):
            rates[name].fade_to(passes)

    def acceptance(self, name: str) -> Acceptance:
        if name not in self._acceptance:
            parent = None if self._parent is None else self._parent.acceptance(name)
            self._acceptance[name] = Acceptance(decay=self._decay, weight=self._weight, parent=parent)
        return self._acceptance[name]

    def source(self, name: str, num_positions: int, drafted: DraftTimes | None = None, rows: float = 1.0) -> Source:
        """`drafted`: the times of a proposer that is elsewhere, which would draft for so many sequences, `rows`."""
        acceptance = self.acceptance(name).rates(num_positions)
        if self._parent is not None:
            return replace(
                self._parent.source(name, num_positions, drafted, rows), acceptance=acceptance, hit=self._hit(name)
            )
        if drafted is None:
            return Source(acceptance=acceptance, hit=self._hit(name))
        return Source(
            acceptance=acceptance,
            hit=self._hit(name),
            late=self._late[name].mean(_COLD_LATE),
            filled=self._filled[name].mean(1.0),
            wait_seconds=self._waits[name].mean(0.0),
            wait_tokens=self._waited_for[name].mean(0.0),
            draft_seconds=drafted.seconds_per_token(rows),
            round_trip=drafted.round_trip,
            is_elsewhere=True,
        )

    def _note_turn(self, name: str, commit: Commit, num_asked: int) -> None:
        drafted = commit.proposer == name
        hit = drafted and commit.hit
        self._hits[name].add(hit)
        if not hit:
            self._late[name].add(drafted)
            self._waits[name].add(commit.wait_us * 1e-6)
            self._waited_for[name].add(num_asked)

    def _hit(self, name: str) -> float:
        cold = _COLD_HIT.get(name, _COLD_REMOTE_HIT)
        return self._hits[name].mean(cold if self._parent is None else self._parent._hit(name))

    def _rate(self) -> Rate:
        return Rate(self._decay, self._weight, lasting=self._parent is not None)
