"""Tokens per second that a way of drafting gives: the formula, and the best number of tokens. Knows numbers only.

    G = sum over sequences of E_r(K) / T
    E_r(K) = 1 + draft tokens expected to stand
    T      = h * max(v, D + r) + (1 - h) * (v + w)
    v      = time of a pass with all its tokens + price of a second of drafting * time that is drafted elsewhere

D: time to draft K tokens; r: round trip to the drafter; h: share of passes that find drafts when they could start; w:
what one that finds none waits. Passes that find none in the end give one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gateway.control.step_times import StepTimes

_HARDLY: Final = 0.01  # of goodput; what is between is not measured so well
_IN_A_ROW: Final = 3  # numbers of tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What one proposer gives, for the passes in which it is its turn."""

    acceptance: tuple[float, ...]  # by position: share that stand where all before them stood
    hit: float  # h
    filled: float = 1.0  # tokens of drafts that are there, as a share of K
    late: float = 0.0  # share of the other passes that get its drafts in the end
    wait_seconds: float = 0.0  # w, as it was
    wait_tokens: float = 0.0  # K then
    draft_seconds: float = 0.0  # for one token
    round_trip: float = 0.0  # r

    is_elsewhere: bool = False  # it drafts while the verifier computes, and may take from it

    def expected_accepted(self, num_draft_tokens: int) -> float:
        """Of drafts that are filled as usual; between two whole numbers of tokens as much as lies between."""
        count = num_draft_tokens * self.filled
        whole = int(count)
        standing = list(accumulate(self.acceptance[: whole + 1], lambda reached, rate: reached * rate))
        return float(sum(standing[:whole]) + (count - whole) * sum(standing[whole:]))

    def wait(self, num_draft_tokens: int) -> float:
        """w: who drafts fewer tokens is waited for so much less."""
        return max(0.0, self.wait_seconds + (num_draft_tokens - self.wait_tokens) * self.draft_seconds)

    @property
    def served(self) -> float:
        """Share of passes that have its drafts."""
        return self.hit + (1 - self.hit) * self.late


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What runs on the verifier: the sequences that are decided about, and the rest of each step."""

    num_sequences: int = 1
    other_rows: float = 0.0  # tokens fed in one step for other sequences
    other_tokens: float = 0.0  # tokens committed for them
    other_sequences: float = 0.0  # of the rest, those that a drafter elsewhere drafts for
    other_drafting: float = 0.0  # their share of the seconds for which it works in each pass
    num_running: int = 1  # on the verifier
    is_lone: bool = True  # one sequence in all: then a pass may wait for its drafts

    @property
    def share(self) -> float:
        """Of a drafter's time, if it drafts for those that are decided about and for the others that it does now.

        It works for all at once, and for one hardly less long than for many. If each group counted what it adds alone,
        all could go on with what none would begin.
        """
        return self.num_sequences / (self.num_sequences + self.other_sequences)


def goodput(sources: Sequence[Source], num_draft_tokens: int, load: Load, times: StepTimes) -> float:
    """Tokens per second over all sequences; the first source that has drafts is used in each pass."""
    accepted, reached, drafting = 0.0, 1.0, load.other_drafting
    turns, checked = [], []
    for source in sources:
        served = reached * source.served
        accepted += served * source.expected_accepted(num_draft_tokens)
        checked.append((served, num_draft_tokens * source.filled))
        if source.is_elsewhere:
            busy = min(1.0, reached * load.num_sequences)  # share of passes in which it has to draft for any of them
            drafting += load.share * busy * num_draft_tokens * source.draft_seconds
        turns.append((source, reached))
        reached -= served
    step = _step_seconds([*checked, (reached, 0.0)], load, times)
    verify = step + times.price(load.num_running).cautious * drafting
    pace = verify + sum(turn * _lag(source, num_draft_tokens, verify, is_lone=load.is_lone) for source, turn in turns)
    return (load.other_tokens + load.num_sequences * (1 + accepted)) / pace


def best_num_tokens(
    sources: Sequence[Source], lowest: int, highest: int, load: Load, times: StepTimes
) -> tuple[int, float]:
    """The smallest K that promises hardly less than the best, and its goodput.

    The last tokens gain least and hang on what is known worst, how a step with them grows; and all others pay for them.
    Once some in a row promise less than the best so far, more are not looked at: many requests ask this in every step.
    """
    scored: list[tuple[int, float]] = []
    best = lowest, 0.0
    for k in range(lowest, highest + 1):
        scored.append((k, goodput(sources, k, load, times)))
        best = max(best, scored[-1], key=lambda pair: pair[1])
        if k - best[0] >= _IN_A_ROW:
            break
    return next(pair for pair in scored if pair[1] >= best[1] / (1 + _HARDLY))


def best_fan_out(most: int, num_draft_tokens: int, source: Source, verify_seconds: float) -> int:
    """As many outcomes as can be drafted for while a pass runs, after the path that it will check itself."""
    needed = 2 * num_draft_tokens * source.draft_seconds + source.round_trip
    share = 1.0 if needed <= verify_seconds else verify_seconds / needed
    return max(min(1, most), round(most * share))


def _step_seconds(checked: Sequence[tuple[float, float]], load: Load, times: StepTimes) -> float:
    """`checked`: shares of a sequence's passes, and how many draft tokens they check.

    Of many sequences each step has about the mean. One alone has now none and now all of K, and a few tokens more may
    cost nothing up to a number at which they begin to.
    """
    if load.num_sequences == 1:
        return sum(share * times.seconds(load.other_rows + 1 + k, load.num_running) for share, k in checked)
    mean = sum(share * k for share, k in checked)
    return times.seconds(load.other_rows + load.num_sequences * (1 + mean), load.num_running)


def _lag(source: Source, num_draft_tokens: int, verify: float, *, is_lone: bool) -> float:
    """By how much a pass takes longer than the step itself; a batch waits for nobody, but a drafter that lags behind
    has fewer drafts there than were measured while it drafted less."""
    behind = max(0.0, num_draft_tokens * source.draft_seconds + source.round_trip - verify)
    waits = source.wait(num_draft_tokens) if is_lone else 0.0
    return source.hit * behind + (1 - source.hit) * waits
