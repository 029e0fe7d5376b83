"""Who drafts, how much and for how many outcomes: gates first, then goodput. Knows a policy and evidence; no request.

Everything that is decided on was final or measured before: committed acceptance, load, times. No drafted token and no
confidence comes here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gateway.control.evidence import LONG_NGRAM, Evidence
from gateway.control.goodput import Load, Source, best_fan_out, best_num_tokens, goodput
from gateway.control.step_times import DraftTimes, StepTimes
from gateway.policy.tenants import Tenant
from slipstream.proposers.ngram import NAME as NGRAM

SWITCH_GAIN: Final = 1.05  # another way must promise so much more before it is taken
STAY_GAIN: Final = 1.02  # over nobody's, what is done now must promise; no gain is needed to stop
ADJUST_GAIN: Final = 1.02  # another K of the same way
RETURN_GAIN: Final = 1.1  # over its gate, for a proposer that was below it
ENOUGH_PASSES: Final = 8.0  # before an acceptance may close a gate

Way = tuple[str, ...]  # who drafts, in order; () is nobody
NOBODY: Final = "none"


class Reason(StrEnum):
    FIXED = "fixed"  # the policy says it all
    COLD = "cold"  # nothing was measured yet
    BEST = "best"  # most goodput
    HELD = "held"  # another way promises too little more
    NONE_PAYS = "none_pays"  # drafting would hardly give more than it costs
    TEMPERATURE = "above_temperature"
    RUNNING = "above_running"
    ACCEPTANCE = "below_acceptance"
    PROBE = "probe"  # tried for a few passes, to see


@dataclass(frozen=True, slots=True)
class Scored:
    way: Way
    num_draft_tokens: int
    goodput: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    way: Way
    num_draft_tokens: int
    fan_out: int
    reason: Reason
    options: tuple[Scored, ...] = ()  # what each way promises at its best

    @property
    def is_off(self) -> bool:
        return not self.way or not self.num_draft_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """All that a decision may look at."""

    evidence: Evidence
    step_times: StepTimes
    draft_times: Mapping[str, DraftTimes] = field(default_factory=dict)  # of proposers that are elsewhere
    load: Load = field(default_factory=Load)
    num_running: int = 0  # on the verifier
    offered: Collection[str] = ()  # proposers of the drafters that are known


def way_name(way: Way) -> str:
    """As metrics and logs show it."""
    return "+".join(way) or NOBODY


def decide(policy: Tenant, known: Known, current: Decision | None = None) -> Decision:
    """A function of its arguments: the same again for the same policy, evidence and load."""
    allowed = usable(policy, known.offered)
    if known.num_running > policy.off_above_running:
        return _off(Reason.RUNNING)
    kept = tuple(name for name in allowed if _is_accepted(name, policy, known.evidence, current))
    if not kept:
        return _off(Reason.ACCEPTANCE if allowed else Reason.FIXED)
    if not policy.is_controlled:
        reason = Reason.FIXED if kept == allowed else Reason.ACCEPTANCE
        return Decision(way=kept, num_draft_tokens=policy.num_draft_tokens, fan_out=policy.fan_out, reason=reason)
    if not known.step_times.known:
        return _at_first(policy, kept)
    return _best(policy, kept, known, current)


def _at_first(policy: Tenant, kept: Way) -> Decision:
    """Only who costs nothing: what passes take without drafting elsewhere must be known before its price can be."""
    way = tuple(name for name in kept if name == NGRAM)
    return Decision(way=way, num_draft_tokens=policy.num_draft_tokens * bool(way), fan_out=0, reason=Reason.COLD)


def usable(policy: Tenant, offered: Collection[str]) -> Way:
    """Who may draft and can. A listed order that is not controlled stays as it is, whoever is there."""
    if not policy.is_controlled:
        return policy.active_proposers
    return tuple(name for name in policy.active_proposers if name == NGRAM or name in offered)


def sources_of(way: Way, known: Known, num_positions: int) -> tuple[Source, ...]:
    """In the order in which a pass asks them."""
    names = [LONG_NGRAM if name == NGRAM and len(way) > 1 else name for name in way]
    rows = known.load.num_sequences + known.load.other_sequences
    return tuple(known.evidence.source(name, num_positions, known.draft_times.get(name), rows) for name in names)


def _best(policy: Tenant, allowed: Way, known: Known, current: Decision | None) -> Decision:
    options = [_score(way, policy, known) for way in ((), *_ways(allowed)) if _is_told(way, known)]
    current = current if _may_stay(current, options, policy) else None
    best = _worth_it(options, current, known.load)
    chosen, reason = _with_hysteresis(best, known, current)
    if not chosen.way:
        return Decision(way=(), num_draft_tokens=0, fan_out=0, reason=Reason.NONE_PAYS, options=tuple(options))
    return Decision(
        way=chosen.way,
        num_draft_tokens=chosen.num_draft_tokens,
        fan_out=_fan_out(chosen, policy, known, current),
        reason=reason,
        options=tuple(options),
    )


def _is_told(way: Way, known: Known) -> bool:
    """In a batch a drafter may take more than it gives: one request tries it before others have it."""
    load = known.load
    return load.is_lone or known.step_times.price(load.num_running).is_known or all(name == NGRAM for name in way)


def _worth_it(options: Collection[Scored], current: Decision | None, load: Load) -> Scored:
    """The best way, or nobody where that promises little more: promises err, and drafts should never cost tokens."""
    best = max(options, key=lambda option: (option.goodput, -len(option.way)))
    nobody = next(option for option in options if not option.way)
    least = SWITCH_GAIN if current is not None and not current.way else STAY_GAIN
    return best if best.goodput > _of_all(least, load) * nobody.goodput else nobody


def _with_hysteresis(best: Scored, known: Known, current: Decision | None) -> tuple[Scored, Reason]:
    if current is None:
        return best, Reason.BEST
    held = Scored(current.way, current.num_draft_tokens, _promise(current.way, current.num_draft_tokens, known))
    gain = ADJUST_GAIN if best.way == held.way else SWITCH_GAIN
    if not best.way or (best.way, best.num_draft_tokens) == (held.way, held.num_draft_tokens):
        return best, Reason.BEST
    return (best, Reason.BEST) if best.goodput > _of_all(gain, known.load) * held.goodput else (held, Reason.HELD)


def _of_all(gain: float, load: Load) -> float:
    """What comes to this gain in the tokens of all that run, if only those that are decided about gain anything."""
    return 1 + (gain - 1) * load.num_sequences / (load.num_sequences + load.other_tokens)


def _may_stay(current: Decision | None, options: Collection[Scored], policy: Tenant) -> bool:
    """Whether what is done now is still allowed, and was chosen by its promise."""
    if current is None or current.reason in (Reason.COLD, Reason.FIXED, Reason.RUNNING, Reason.ACCEPTANCE):
        return False
    if current.way and not max(1, policy.min_draft_tokens) <= current.num_draft_tokens <= policy.num_draft_tokens:
        return False
    return current.way in [option.way for option in options]


def _score(way: Way, policy: Tenant, known: Known) -> Scored:
    if not way:
        return Scored((), 0, _promise((), 0, known))
    highest = policy.num_draft_tokens
    lowest = max(1, policy.min_draft_tokens)
    sources = sources_of(way, known, highest)
    return Scored(way, *best_num_tokens(sources, lowest, highest, known.load, known.step_times))


def _promise(way: Way, num_draft_tokens: int, known: Known) -> float:
    return goodput(sources_of(way, known, num_draft_tokens), num_draft_tokens, known.load, known.step_times)


def _fan_out(chosen: Scored, policy: Tenant, known: Known, current: Decision | None) -> int:
    """One more or less than now is no reason to change."""
    sources = dict(zip(chosen.way, sources_of(chosen.way, known, chosen.num_draft_tokens), strict=True))
    remote = next((source for name, source in sources.items() if name != NGRAM), None)
    if remote is None:
        return 0
    rows = known.load.other_rows + known.load.num_sequences
    verify = known.step_times.seconds(rows, known.load.num_running)
    best = best_fan_out(policy.fan_out, chosen.num_draft_tokens, remote, verify)
    held = current.fan_out if current is not None and current.way == chosen.way else best
    return held if abs(best - held) <= 1 and held <= policy.fan_out else best


def _ways(allowed: Collection[str]) -> Iterator[Way]:
    """Each proposer by itself, and n-grams with a long match before each of the others."""
    for name in allowed:
        yield (name,)
    if NGRAM in allowed:
        for name in allowed:
            if name != NGRAM:
                yield (NGRAM, name)


def _is_accepted(name: str, policy: Tenant, evidence: Evidence, current: Decision | None) -> bool:
    drafted = evidence.acceptance(name).drafted
    if not policy.off_below_acceptance or drafted.trials < ENOUGH_PASSES:
        return True
    gate = policy.off_below_acceptance
    was_off = current is not None and name not in current.way
    return drafted.mean(0.0) >= (min(1.0, gate * RETURN_GAIN) if was_off else gate)


def _off(reason: Reason) -> Decision:
    return Decision(way=(), num_draft_tokens=0, fan_out=0, reason=reason)
