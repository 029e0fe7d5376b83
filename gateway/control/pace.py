"""How fast a verifier's passes follow one another, from the commits of each. Knows reports and a clock; no request.

A pass counts from the commits of the one before to its own: what lies between two steps costs as much as the steps, and
drafting may make it longer. What a lone sequence waited for drafts is not of the pass; the formula has it by itself.
Where nothing ran before, there is the step's own time.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.control.evidence import Asked
from gateway.control.rate import Rate
from gateway.control.step_times import StepTimes
from slipstream.exchange import Commit, StepReport
from slipstream.proposers.ngram import NAME as NGRAM


class Pace:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.step_times = StepTimes()
        self.num_running = 0
        self.num_asked = 0  # sequences that a drafter elsewhere was asked for, in the last whole step
        self._tokens_each = Rate(0.98, 1.0)  # of a step, for each sequence that runs; prompts included
        self._clock = clock
        self._step: StepReport | None = None  # the last one: all commits of a step come with the same report
        self._seconds = 0.0  # it took
        self._drafting = 0.0  # for so long drafters elsewhere were at work meanwhile, as they told
        self._asked = 0  # so many of its sequences were to be drafted for
        self._came: float | None = None  # when; None: nothing runs since

    def note(self, commit: Commit, step: StepReport, asked: Asked) -> bool:
        """Whether a new step has come with it. A drafter works for all at once: the longest time of any counts."""
        is_new = step is not self._step
        if is_new:
            self._end_step()
            self._begin_step(commit, step)
        self._drafting = max(self._drafting, asked.seconds)
        self._asked += bool(asked.proposers) and commit.proposer != NGRAM  # beside n-grams it may have rested
        return is_new

    def note_idle(self) -> None:
        """None of ours runs any more."""
        self._came = None

    def seconds(self, num_sequences: float) -> float:
        """Of a pass with so many sequences like those of late; raises unless something was measured."""
        return self.step_times.seconds(num_sequences * self._tokens_each.mean(1.0), num_sequences)

    def _begin_step(self, commit: Commit, step: StepReport) -> None:
        now, own = self._clock(), step.step_us * 1e-6
        waited = commit.wait_us * 1e-6 if step.num_running <= 1 else 0.0
        between = 0.0 if self._came is None else now - self._came - waited - own
        self._seconds = own + min(max(0.0, between), own)
        self._came = now if step.num_running else None
        self._step, self._drafting, self._asked = step, 0.0, 0
        self._tokens_each.add(step.num_tokens / max(1, step.num_running))
        self.num_running = step.num_running

    def _end_step(self) -> None:
        step, self.num_asked = self._step, self._asked
        if step is not None and step.step_us:
            told = None if self._asked and not self._drafting else self._drafting
            self.step_times.note(step.num_tokens, self._seconds, num_running=max(1, step.num_running), drafting=told)
