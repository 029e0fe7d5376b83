"""Verifier, drafter and the wire between them as a discrete-event simulation. Knows times and chances; runs no model.

What is real here: which outcomes are drafted for (drafter_svc/enumeration.py) and how much waiting is worth
(verifier_svc/patience.py). What is simulated: how long steps and messages take, and which tokens stand. Every stream
decodes without end; prompts, n-grams and the controller are left out (drafting_simulation.py has the last two).

A path is known by the position of its first token and by how many of its tokens agree with what the target will say.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from bench.controller_machines import Machine
from drafter_svc.enumeration import Outcome, OutcomeHistory
from verifier_svc.patience import Patience

FAR: Final = 256  # tokens; no path agrees longer


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """How it lets itself be drafted."""

    acceptance: tuple[float, ...]  # of a draft token at each position, those before it accepted; the last one goes on
    recovered_first: float = 0.45  # the drafter's first guess at a recovered token is right; its next ones by as much
    bonus_first: float = 0.7  # the same of a bonus token


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is asked of drafter and verifier."""

    num_draft_tokens: int  # K
    fan_out: int = 0  # outcomes drafted for ahead of a pass
    max_wait: float = 0.0  # seconds that a lone sequence waits at most
    is_patient: bool = False  # it also waits no longer than its drafts are worth
    waits_together: bool = (
        False  # several streams wait, too, as long as drafts are worth to all (verifier_svc/waiting.py)
    )
    num_streams: int = 1
    draws_at_once: bool = False  # a draft step draws all tokens of its rows, and what comes meanwhile waits for its end
    max_rows: int = 64  # of one draft step: trunks, then branches, the likeliest first
    seed: int = 0


@dataclass(slots=True, eq=False)
class Path:
    base: int  # position of its first token
    agrees: int  # leading tokens that the target will say too
    drawn: int = 0
    arrived: int = 0  # tokens that the verifier has
    is_true: bool = True  # everything before `base` comes true

    def follows(self, committed: int) -> bool:
        """Whether it goes on from so many committed tokens."""
        return self.is_true and self.base <= committed <= self.base + min(self.agrees, self.drawn)

    def num_usable(self, committed: int) -> int:
        return max(0, self.base + self.arrived - committed) if self.follows(committed) else 0


@dataclass(slots=True, eq=False)
class Stream:
    trunk: Path
    committed: int = 0  # at the verifier
    known: int = 0  # at the drafter
    branches: list[Path] = field(default_factory=list)
    offers: list[Path] = field(default_factory=list)  # that the verifier has tokens of
    history: OutcomeHistory = field(default_factory=OutcomeHistory)
    patience: Patience = field(default_factory=Patience)
    ready_at: float = 0.0
    was_silent: bool = False  # the last wait ran out

    @property
    def drafts(self) -> int:
        return max((path.num_usable(self.committed) for path in self.offers), default=0)


@dataclass(slots=True)
class Counts:
    tokens: int = 0
    passes: int = 0
    hits: int = 0  # passes whose drafts were there when their sequence became ready

    @property
    def hit_rate(self) -> float:
        return self.hits / self.passes if self.passes else 0.0

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes if self.passes else 0.0


class Pipeline:
    def __init__(self, machine: Machine, text: Text, setting: Setting) -> None:
        self.now = 0.0
        self.counts = Counts()
        self._machine, self._text, self._setting = machine, text, setting
        self._random = random.Random(setting.seed)
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._verifying = self._drafting = False
        self._streams = [Stream(self._path(0)) for _ in range(setting.num_streams)]

    def run(self, seconds: float) -> Counts:
        """So much simulated time; returns what happened in it."""
        self.counts = Counts()
        end = self.now + seconds
        self._at(0.0, self._draft)
        self._at(0.0, self._verify)
        while self._events[0][0] <= end:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.now = end
        return self.counts

    def _at(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), happen))

    # The verifier

    def _verify(self) -> None:
        if self._verifying:
            return
        if (wait := self._wait()) > 0:
            self._at(wait, self._verify)
            return
        self._verifying = True
        submitted = [min(self._setting.num_draft_tokens, stream.drafts) for stream in self._streams]
        for stream, num_draft_tokens in zip(self._streams, submitted, strict=True):
            waited = self.now - stream.ready_at
            self.counts.hits += num_draft_tokens > 0 and waited == 0
            stream.was_silent = waited > 0 and num_draft_tokens == 0
        seconds = self._machine.verify_seconds(sum(submitted) + len(submitted))
        self._at(seconds, partial(self._end_pass, submitted, seconds))

    def _wait(self) -> float:
        """What is left of a lone sequence's wait, or of all."""
        setting, streams = self._setting, self._streams
        if setting.num_draft_tokens == 0 or (len(streams) > 1 and not setting.waits_together):
            return 0.0
        awaiting = [stream for stream in streams if not stream.drafts and not stream.was_silent]
        if not awaiting:
            return 0.0
        most = min(setting.max_wait, self._worth(awaiting)) if setting.is_patient else setting.max_wait
        left = awaiting[0].ready_at + most - self.now
        return left if left > 1e-9 else 0.0

    def _worth(self, awaiting: Sequence[Stream]) -> float:
        if len(self._streams) == 1:
            return awaiting[0].patience.seconds
        gain = sum(stream.patience.gain for stream in awaiting)
        without = len(self._streams) + gain / len(awaiting) * (len(self._streams) - len(awaiting))
        return gain / without * awaiting[0].patience.pass_seconds

    def _end_pass(self, submitted: Sequence[int], seconds: float) -> None:
        self._verifying = False
        for stream, num_draft_tokens in zip(self._streams, submitted, strict=True):
            accepted = self._accepted(stream, num_draft_tokens)
            self.counts.passes += 1
            self.counts.tokens += accepted + 1
            stream.committed += accepted + 1
            stream.ready_at = self.now
            stream.patience.note_pass(seconds)
            if num_draft_tokens:
                stream.patience.note_drafts(accepted)
            else:
                stream.patience.note_none()
            news = partial(self._learn, stream, stream.committed, accepted, num_draft_tokens)
            self._at(self._machine.round_trip / 2, news)
        if not self._machine.overlaps:
            self._draft()
        self._at(0.0, self._verify)

    def _accepted(self, stream: Stream, num_draft_tokens: int) -> int:
        if not num_draft_tokens:
            return 0
        path = max(stream.offers, key=lambda offer: offer.num_usable(stream.committed))
        return min(num_draft_tokens, path.base + path.agrees - stream.committed)

    def _receive(self, stream: Stream, path: Path, num_tokens: int) -> None:
        path.arrived = num_tokens
        stream.was_silent = False
        stream.offers = [offer for offer in stream.offers if offer.base + FAR > stream.committed and offer is not path]
        stream.offers.append(path)
        self._at(0.0, self._verify)  # with all that comes in one message

    # The drafter

    def _learn(self, stream: Stream, committed: int, accepted: int, num_draft_tokens: int) -> None:
        """The commit has reached it."""
        if num_draft_tokens:
            stream.history.observe_pass(accepted, num_draft_tokens)
        stream.known = committed
        paths = (stream.trunk, *stream.branches)
        stream.trunk = next((path for path in paths if path.follows(committed)), None) or self._path(committed)
        stream.branches = [path for path in stream.branches if path.is_true and path.base > committed]
        self._branch(stream)
        self._at(0.0, self._draft)  # of all streams of one step at once

    def _draft(self) -> None:
        if self._drafting or (self._verifying and not self._machine.overlaps):
            return
        work = [(stream, stream.trunk) for stream in self._streams if not self._is_complete(stream, stream.trunk)]
        likeliest = sorted((n, i) for i, stream in enumerate(self._streams) for n in range(len(stream.branches)))
        branches = [(self._streams[i], self._streams[i].branches[n]) for n, i in likeliest]
        work = [*work, *(pair for pair in branches if not self._is_complete(*pair))][: self._setting.max_rows]
        if not work:
            return
        self._drafting = True
        num_tokens = self._setting.num_draft_tokens if self._setting.draws_at_once else 1
        self._at(self._machine.draft_seconds(num_tokens, len(work)), partial(self._end_step, work))

    def _end_step(self, work: Sequence[tuple[Stream, Path]]) -> None:
        self._drafting = False
        for stream, path in work:
            left = max(path.base, stream.known) + self._setting.num_draft_tokens - path.base - path.drawn
            path.drawn += max(1, left) if self._setting.draws_at_once else 1
            if path is stream.trunk or path in stream.branches:
                self._send(stream, path)
        self._draft()

    def _send(self, stream: Stream, path: Path) -> None:
        if not self._is_complete(stream, path):
            return
        if path.is_true:
            self._at(self._machine.round_trip / 2, partial(self._receive, stream, path, path.drawn))
        if path is stream.trunk:
            self._branch(stream)

    def _branch(self, stream: Stream) -> None:
        """Begins what the trunk's outcomes are to go on with, once it is complete."""
        k = self._setting.num_draft_tokens
        if not self._is_complete(stream, stream.trunk) or k == 0:
            return
        outcome = self._outcome(stream, k)
        stream.history.observe_outcome(outcome.num_accepted == k, outcome.rank)
        known = {branch.base for branch in stream.branches}
        for guess in stream.history.rank_outcomes(k, self._setting.fan_out):
            base = stream.known + guess.num_accepted + 1
            is_true = (guess.num_accepted, guess.rank) == (outcome.num_accepted, outcome.rank)
            if not (is_true and base in known):
                stream.branches.append(self._path(base, is_true=is_true))

    def _outcome(self, stream: Stream, num_draft_tokens: int) -> Outcome:
        """What will come of the trunk."""
        accepted = min(num_draft_tokens, stream.trunk.base + stream.trunk.agrees - stream.known)
        first = self._text.bonus_first if accepted == num_draft_tokens else self._text.recovered_first
        return Outcome(accepted, self._run(lambda rank: 1 - first), probability=1.0)

    def _is_complete(self, stream: Stream, path: Path) -> bool:
        return path.base + path.drawn >= max(path.base, stream.known) + self._setting.num_draft_tokens

    def _path(self, base: int, *, is_true: bool = True) -> Path:
        acceptance = self._text.acceptance
        agrees = self._run(lambda i: acceptance[min(i, len(acceptance) - 1)])
        return Path(base, agrees, is_true=is_true)

    def _run(self, chance: Callable[[int], float]) -> int:
        """How often in a row what has that chance happens."""
        return next((i for i in range(FAR) if self._random.random() >= chance(i)), FAR)
