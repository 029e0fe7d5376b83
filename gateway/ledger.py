"""Counts and times of one request. Knows commits and clock readings; knows no peer and no client."""

from __future__ import annotations

from gateway.completion import Timings, Usage
from slipstream.exchange import Commit, StepReport


class Ledger:
    """Adds up what generation.proto's Usage and Timings tell. Times are seconds of one monotonic clock."""

    def __init__(self, *, received: float, prompt_tokens: int, num_draft_tokens: int, seed: int) -> None:
        self._received = received
        self.usage = Usage(
            prompt_tokens=prompt_tokens,
            seed=seed,
            accepted_per_position=[0] * num_draft_tokens,
            submitted_per_position=[0] * num_draft_tokens,
        )
        self._timings = Timings()

    def record_commit(self, commit: Commit, step: StepReport, now: float) -> None:
        usage, timings = self.usage, self._timings
        if not usage.num_passes:
            usage.cached_tokens = commit.num_cached_tokens
            timings.first_token_us = _microseconds(now - self._received)
            timings.queue_us = max(0, timings.first_token_us - step.step_us)
        usage.num_passes += 1
        usage.completion_tokens += len(commit.token_ids)
        timings.verify_us += step.step_us
        timings.wait_us += commit.wait_us
        if commit.num_draft_tokens:
            self._record_drafts(commit)

    def record_draft_batch(self, *, draft_us: int, wire_us: int) -> None:
        self._timings.draft_us += draft_us
        self._timings.wire_us += wire_us

    def timings(self, now: float) -> Timings:
        self._timings.total_us = _microseconds(now - self._received)
        return self._timings

    def _record_drafts(self, commit: Commit) -> None:
        usage = self.usage
        usage.num_drafts += 1
        usage.num_draft_tokens += commit.num_draft_tokens
        usage.accepted_tokens += commit.num_accepted
        for counts, number in (
            (usage.submitted_per_position, commit.num_draft_tokens),
            (usage.accepted_per_position, commit.num_accepted),
        ):
            for position in range(min(number, len(counts))):
                counts[position] += 1


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
