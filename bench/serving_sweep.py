"""Which points a serving measurement has, and in which order: what is worth most first. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.serving_point import AUTO, NONE, Policy
from slipstream.proposers.ngram import NAME as NGRAM

RATIO: Final = "ratio"
Load = tuple[float, int]  # temperature, streams
FIRST_LOADS: Final[tuple[Load, ...]] = ((0.0, 1), (0.0, 32), (1.0, 1))  # what is asked about first
LATER_LOADS: Final[tuple[Load, ...]] = ((0.0, 8), (0.0, 64), (1.0, 32))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What is asked."""

    proposers: tuple[str, ...]
    streams: tuple[int, ...] = (1, 8, 32, 64)
    temperatures: tuple[float, ...] = (0.0, 1.0)
    modes: tuple[str, ...] = ("ratio", "coupled")
    num_draft_tokens: int = 5
    fan_out: int = 8  # where enumeration is on
    most_ahead: int = 1 << 20  # streams with which it is; with more the drafter runs ahead of nobody
    num_tokens: int = 128  # of an answer
    warm_seconds: float = 0.7  # of a point, before anything counts
    first_warm_seconds: float = 2.0  # of the first one with laws, whose graphs are captured as they are needed
    seconds: float = 5.0  # of a point

    def policies(self) -> Iterator[Policy]:
        """Plain decoding first."""
        yield Policy(proposer=NONE)
        for proposer in self.proposers:
            fan_outs = (0,) if proposer == NGRAM else (self.fan_out,) if proposer == AUTO else (self.fan_out, 0)
            for mode in self._modes_of(proposer):
                for fan_out in dict.fromkeys(fan_outs):
                    yield Policy(proposer=proposer, mode=mode, num_draft_tokens=self.num_draft_tokens, fan_out=fan_out)

    def points(self) -> Iterator[tuple[Policy, float, int]]:
        """At T = 0 both modes are one. Cut short anywhere, it has told the most; plain comes before what is beside it.

        The first loads plainly and with a model, then the later loads so and the first in other ways, then the rest.
        """
        found = [
            (policy, temperature, streams)
            for temperature, streams in self._loads()
            for policy in self.policies()
            if self._is_worth_it(policy, temperature, streams)
        ]
        return iter(sorted(found, key=lambda point: self._round_of(point[0]) + _round_of_load(point[1:])))

    def _is_worth_it(self, policy: Policy, temperature: float, streams: int) -> bool:
        if policy.proposer in (NONE, AUTO):
            return True
        runs_ahead = not policy.fan_out or streams <= self.most_ahead
        return runs_ahead and (temperature > 0 or policy.mode == self.modes[0])

    def warm_seconds_of(self, policy: Policy, temperature: float, streams: int) -> float:
        """Before anything counts."""
        drawn = policy.mode == RATIO and policy.proposer not in (NONE, NGRAM) and temperature > 0
        is_first = policy.fan_out == self.fan_out or streams > self.most_ahead
        return self.first_warm_seconds if drawn and is_first else self.warm_seconds

    def _modes_of(self, proposer: str) -> tuple[str, ...]:
        return () if proposer == NONE else self.modes[:1] if proposer == AUTO else self.modes

    def _loads(self) -> list[Load]:
        asked = [(temperature, streams) for temperature in self.temperatures for streams in self.streams]
        known = [*FIRST_LOADS, *LATER_LOADS]
        return sorted(asked, key=lambda load: known.index(load) if load in known else len(known))

    def _round_of(self, policy: Policy) -> int:
        if policy.proposer == NONE:
            return 0
        return int(policy.proposer in (NGRAM, AUTO) or policy.mode != self.modes[0])


def _round_of_load(load: Load) -> int:
    return 0 if load in FIRST_LOADS else 1 if load in LATER_LOADS else 2
