"""Counts and times of one request, its own and in the metrics of all. Knows commits and clock readings; no peer."""

from __future__ import annotations

from gateway.completion import Timings, Usage
from gateway.metrics import GatewayMetrics
from slipstream.exchange import Commit, StepReport


class Ledger:
    """Adds up what generation.proto's Usage and Timings report. Times are seconds of one monotonic clock."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        tenant: str,
        *,
        received: float,
        prompt_tokens: int,
        num_draft_tokens: int,
        seed: int,
    ) -> None:
        self._metrics = metrics
        self.tenant = tenant
        self._received = received
        self._first_commit = self._last_commit = received
        self._num_first = 0  # tokens of the first commit
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
            self._record_first(commit, step, now)
        self._last_commit = now
        self._metrics.record_pass(self.tenant, commit, step)
        usage.num_passes += 1
        usage.completion_tokens += len(commit.token_ids)
        timings.verify_us += step.step_us
        timings.wait_us += commit.wait_us
        if commit.num_draft_tokens:
            self._record_drafts(commit)

    def record_draft_batch(self, proposer: str, *, draft_us: int, wire_us: int) -> None:
        self._metrics.record_draft_batch(self.tenant, proposer, draft_us=draft_us, wire_us=wire_us)
        self._timings.draft_us += draft_us
        self._timings.wire_us += wire_us

    def record_move(self, reason: str) -> None:
        """The sequence must look for another verifier."""
        self._metrics.moves.add(1, self.tenant, reason)

    def timings(self, now: float) -> Timings:
        self._timings.total_us = _microseconds(now - self._received)
        return self._timings

    def record_end(self, outcome: str, now: float) -> None:
        """Once, however the request ended."""
        metrics, tenant = self._metrics, self.tenant
        metrics.requests.add(1, tenant, outcome)
        metrics.request_seconds.observe(now - self._received, tenant)
        num_later = self.usage.completion_tokens - self._num_first
        if num_later:
            metrics.output_token_seconds.observe((self._last_commit - self._first_commit) / num_later, tenant)

    def _record_first(self, commit: Commit, step: StepReport, now: float) -> None:
        usage, timings = self.usage, self._timings
        self._first_commit, self._num_first = now, len(commit.token_ids)
        usage.cached_tokens = commit.num_cached_tokens
        timings.first_token_us = _microseconds(now - self._received)
        timings.queue_us = max(0, timings.first_token_us - step.step_us)
        self._metrics.record_first_token(
            self.tenant,
            num_prompt=usage.prompt_tokens,
            num_cached=usage.cached_tokens,
            first=timings.first_token_us * 1e-6,
            queue=timings.queue_us * 1e-6,
        )

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
