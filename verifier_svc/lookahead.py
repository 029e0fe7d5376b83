"""Launches the step behind the running one before that ends, where only the outcome is missing. Knows no network.

What each sequence is to check next is worked out for every outcome that is drafted for; the GPU picks (kernels/
follow_up.py), and so does the host when it hears of the outcome. A sequence that the outcome ends has been computed on
once more for nothing; that result is dropped.

Only where any choice of drafts is safe (docs/exactness.md): greedy, coupled and without any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.cache.block_pool import OutOfBlocks
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.scheduler import Scheduler, Share
from slipstream.engine.successor import MOST_BRANCHES, MOST_DRAFTS, Branch, Successor
from slipstream.exchange import TokenLogprobs
from slipstream.sampling.check import Verdict
from slipstream.timeline import NO_TIMELINE, Timeline
from verifier_svc.draft_tree import NO_PATH, DraftPath
from verifier_svc.meanwhile import TakeIn, undisturbed
from verifier_svc.verify_pass import Pass

MOST_MISSING: Final = 1 / 8  # of the sequences that are drafted for may have no drafts yet
COLD_SECONDS: Final = 1e-3  # that a launch may take, before any was timed

Outcome = tuple[int, int]  # draft tokens accepted, and the token after them


@dataclass(slots=True)
class Running:
    """A step that is launched."""

    passes: Sequence[Pass]
    finish: Callable[[], list[Verdict]]  # waits; one for each pass that completes
    read_scores: Callable[[], list[TokenLogprobs]]


@dataclass(slots=True)
class Ahead:
    """A step that is launched behind the running one; what it computes depends on how that ends."""

    paths: Sequence[Mapping[Outcome, DraftPath]]  # of each pass of the running step
    limits: Sequence[Sequence[int]]  # most draft tokens, by draft tokens accepted
    finish: Callable[[], list[Outcome]]

    def after(self, passes: Sequence[Pass], verdicts: Sequence[Verdict], now: float) -> Running:
        """The running step is over."""
        following = []
        for one, verdict, paths, limits in zip(passes, verdicts, self.paths, self.limits, strict=True):
            path = paths.get((verdict.num_accepted, verdict.token_ids[-1]), NO_PATH)
            one.active.start_behind(path, now)
            share = Share(one.active.engine, 1, limits[verdict.num_accepted], completes=True)
            following.append(Pass(one.active, share, path, None))
        return Running(following, lambda: _verdicts(following, self.finish()), list)


class Lookahead:
    def __init__(self, runner: ModelRunner, scheduler: Scheduler, timeline: Timeline = NO_TIMELINE) -> None:
        self.seconds = COLD_SECONDS  # that a launch takes
        self._runner = runner
        self._scheduler = scheduler
        self._timeline = timeline

    def launch_late(self, passes: Sequence[Pass], take_in: TakeIn, end: float) -> Ahead | None:
        """Takes drafts in until just before the running step's `end`; then the next step may be launched.

        Not if anything came that may change who takes part: it would have to wait for two steps, not for one.
        """
        follows = self._may_follow(passes)
        stays = undisturbed(take_in, end - self.seconds if follows else end)
        forget_reservations(passes)
        if not (follows and stays):
            return None
        with self._timeline.span("schedule", "look ahead"):
            return self._launch(passes)

    def _may_follow(self, passes: Sequence[Pass]) -> bool:
        """Whether the next step is of the same sequences, and nothing but the outcome decides what each does."""
        alone = len(passes) == 1
        return (
            len(passes) == len(self._scheduler.running)
            and not self._scheduler.may_admit
            and any(one.active.engine.may_go_on for one in passes)
            and all(
                one.active.is_open
                and one.share.completes
                and one.active.is_predictable
                and not (alone and one.active.may_wait)
                for one in passes
            )
        )

    def _launch(self, passes: Sequence[Pass]) -> Ahead | None:
        """None if there is no room, or drafts may still come that are worth more than the time between two steps."""
        started = time.monotonic()
        limits = [self._limits(one) for one in passes]
        if not all(_reserve(one, most_drafts=max(own)) for one, own in zip(passes, limits, strict=True)):
            forget_reservations(passes)
            return None
        branches = [one.active.branches(one.path, own)[:MOST_BRANCHES] for one, own in zip(passes, limits, strict=True)]
        if _num_missing(passes, limits, branches) > MOST_MISSING * len(passes):
            forget_reservations(passes)
            return None
        successors = [
            Successor(
                one.active.check(one.path),
                one.active.engine.table.block_ids,
                [Branch(*outcome, [token.token_id for token in path.tokens]) for outcome, path in own],
            )
            for one, own in zip(passes, branches, strict=True)
        ]
        finish = self._runner.launch_after(successors)
        self.seconds += (time.monotonic() - started - self.seconds) / 8
        if finish is None:
            forget_reservations(passes)
            return None
        return Ahead([dict(own) for own in branches], limits, finish)

    def _limits(self, one: Pass) -> list[int]:
        """Most draft tokens of the next pass, for each number of draft tokens that this one may accept."""
        engine = one.active.engine
        most = min(engine.num_draft_tokens, self._scheduler.draft_allowance, MOST_DRAFTS)
        room = engine.max_len - engine.num_tokens - 2  # the outcome's last token, and the one after the next drafts
        return [max(0, min(most, room - num_accepted)) for num_accepted in range(len(one.path.tokens) + 1)]


def _num_missing(passes: Sequence[Pass], limits: Sequence[Sequence[int]], branches: Sequence[Sequence[object]]) -> int:
    """Sequences that someone drafts for and that have no draft for any outcome."""
    return sum(
        max(own) > 0 and not known and one.active.is_drafted
        for one, own, known in zip(passes, limits, branches, strict=True)
    )


def forget_reservations(passes: Sequence[Pass]) -> None:
    """No step is launched behind the running one: what that does not keep may be given back."""
    for one in passes:
        one.active.engine.num_reserved = 0


def _reserve(one: Pass, most_drafts: int) -> bool:
    """Blocks for whatever the step under way and the one behind it may write."""
    engine = one.active.engine
    try:
        engine.reserve(min(engine.num_tokens + len(one.path.tokens) + 1 + most_drafts, engine.max_len))
    except OutOfBlocks:
        return False
    return True


def _verdicts(passes: Sequence[Pass], outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [
        Verdict((*[token.token_id for token in one.path.tokens[:num_accepted]], token_id), num_accepted)
        for one, (num_accepted, token_id) in zip(passes, outcomes, strict=True)
    ]
