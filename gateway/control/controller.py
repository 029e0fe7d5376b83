"""Decides for all requests of one verifier how they are drafted. Knows groups of requests and measured times; no link.

Requests of one tenant and one range of temperatures form a group: they share evidence and a decision. It is made anew
every few passes of the group, when load or policy changes, and after a try of a proposer that does not draft.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final

from gateway.control.decision import Decision, Known, Reason, decide, usable
from gateway.control.evidence import Asked, Evidence, Trial
from gateway.control.goodput import Load
from gateway.control.group import GATED, Group, Kind, Member, load_beside
from gateway.control.pace import Pace
from gateway.control.probing import PROBE_PASSES, Allowance
from gateway.control.step_times import DraftTimes, StepTimes, magnitude
from gateway.policy.tenants import Tenant
from slipstream.exchange import Commit, StepReport
from slipstream.proposers.ngram import NAME as NGRAM

DECIDE_PASSES: Final = 16  # of a group, or two of each of its requests if that is more
PROBE_TOKENS: Final = 4  # K of a try
_OLD_PASSES: Final = 8.0  # what evidence is worth once its proposer has not drafted for long

OnChange = Callable[[Group, Decision], None]  # the group, and what was decided before


class Controller:
    def __init__(
        self,
        address: str,
        offered: Callable[[], Collection[str]],  # proposers of the drafters that are known
        on_change: OnChange = lambda group, before: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._offered = offered
        self.groups: dict[Kind, Group] = {}
        self._pace = Pace(clock)
        self._allowance = Allowance()
        self.draft_times: defaultdict[str, DraftTimes] = defaultdict(DraftTimes)
        self._on_change = on_change

    @property
    def step_times(self) -> StepTimes:
        return self._pace.step_times

    @property
    def num_running(self) -> int:
        return self._pace.num_running

    def join(self, member: Member, kind: Kind, policy: Tenant) -> Decision:
        """How it is drafted from its first pass on."""
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = Group(kind, policy)
            group.decision = self._decide(group)
        if group.policy != policy:
            group.policy = policy
            self.reconsider(group)
        elif not group.members:
            self.reconsider(group)  # it was decided under another load, perhaps
        group.members[member] = None
        return group.decision

    @property
    def is_idle(self) -> bool:
        return not any(group.members for group in self.groups.values())

    def forget_groups(self, *, besides: Collection[str]) -> None:
        """Of tenants that are not among these, once nothing of theirs runs."""
        gone = [kind for kind, group in self.groups.items() if kind.tenant not in besides and not group.members]
        for kind in gone:
            del self.groups[kind]

    def leave(self, member: Member, kind: Kind) -> None:
        group = self.groups[kind]
        del group.members[member]
        if group.prober is member:
            self._end_probe(group)
        if self.is_idle:
            self._pace.note_idle()

    def note_pass(self, member: Member, kind: Kind, commit: Commit, step: StepReport, asked: Asked) -> None:
        group = self.groups[kind]
        self._note_step(commit, step, asked)
        group.elsewhere.add(bool(asked.proposers))
        group.rows.add(1 + commit.num_draft_tokens)
        group.tokens.add(len(commit.token_ids))
        if member.tells:
            group.evidence.note_pass(commit, asked)
        self._count_pass(group, member)

    def note_drafts(self, proposer: str, *, draft_us: int, wire_us: int, num_draft_tokens: int) -> None:
        self.draft_times[proposer].note(
            draft_us=draft_us,
            wire_us=wire_us,
            num_draft_tokens=num_draft_tokens,
            num_sequences=max(1, self._pace.num_asked),
        )

    def note_trial(self, kind: Kind, trial: Trial) -> None:
        self.groups[kind].evidence.note_trial(trial)

    def reconsider(self, group: Group) -> None:
        """Decides anew, and tells the group's requests if that changes anything for them."""
        before, group.decision = group.decision, self._decide(group)
        group.passes = 0
        if _tells_the_same(before, group.decision):
            return
        self._on_change(group, before)
        group.probing.note_end(changed=True)
        for member in list(group.members):
            if member is not group.prober:
                member.take_up(group.decision)

    def step_seconds(self, num_sequences: float) -> float:
        """Of a step with so many sequences like those of late; raises unless something was measured."""
        return self._pace.seconds(num_sequences)

    def usable(self, group: Group) -> tuple[str, ...]:
        """Who may draft for the group and can."""
        return usable(group.policy, self._offered())

    def known(self, group: Group, evidence: Evidence | None = None) -> Known:
        """What a decision for the group, or with `evidence` for one of its requests, looks at."""
        return Known(
            evidence=evidence or group.evidence,
            step_times=self.step_times,
            draft_times={name: self.draft_times[name] for name in group.policy.active_proposers if name != NGRAM},
            load=self._load(group),
            num_running=self.num_running,
            offered=self._offered(),
        )

    def _decide(self, group: Group) -> Decision:
        if group.kind.temperature == GATED:
            return Decision(way=(), num_draft_tokens=0, fan_out=0, reason=Reason.TEMPERATURE)
        return decide(group.policy, self.known(group), group.decision)

    def _note_step(self, commit: Commit, step: StepReport, asked: Asked) -> None:
        before = self.num_running
        if self._pace.note(commit, step, asked) and magnitude(before) != magnitude(self.num_running):
            for group in self.groups.values():
                if group.members:
                    self.reconsider(group)

    def _count_pass(self, group: Group, member: Member) -> None:
        group.passes += 1
        if group.policy.is_controlled:
            self._allowance.note_pass(1 / max(1, self.num_running))
        if member is group.prober:
            group.probe_passes += 1
            if group.probe_passes >= PROBE_PASSES:
                self._end_probe(group)
        elif _may_probe(group) and group.probing.is_due() and self._may_try:
            self._begin_probe(group, self._silent(group))
        if group.prober is None and group.passes >= max(DECIDE_PASSES, 2 * len(group.members)):
            self.reconsider(group)

    @property
    def _may_try(self) -> bool:
        """One request at a time, of whatever group: what a try costs, it costs all."""
        return self._allowance.is_earned and all(group.prober is None for group in self.groups.values())

    def _silent(self, group: Group) -> list[str]:
        """Proposers that may draft, do not, and show what they are worth only by drafting."""
        return [name for name in self.usable(group) if name not in (NGRAM, *group.decision.way)]

    def _begin_probe(self, group: Group, silent: list[str]) -> None:
        prober = next((member for member in group.members if member.tells), None)
        if prober is None or not silent:
            return
        group.probed = silent[group.probing.turn(len(silent))]
        group.prober, group.probe_passes = prober, 0
        group.evidence.fade_to(group.probed, _OLD_PASSES)
        prober.take_up(
            Decision(
                way=(group.probed,),
                num_draft_tokens=min(PROBE_TOKENS, group.policy.num_draft_tokens),
                fan_out=group.policy.fan_out,
                reason=Reason.PROBE,
            )
        )

    def _end_probe(self, group: Group) -> None:
        prober, group.prober = group.prober, None
        before = group.decision
        self.reconsider(group)
        self._allowance.note_try(group.probe_passes, self._cost(group))
        if not _tells_the_same(before, group.decision):
            return  # all have been told
        group.probing.note_end(changed=False)
        if prober in group.members:
            prober.take_up(group.decision)

    def _cost(self, group: Group) -> float:
        """Of drafting for one request as was tried: the share of all tokens that is lost meanwhile."""
        if not self.step_times.known:
            return 0.0
        load = self._load(group)
        rows = load.other_rows + load.num_sequences * group.rows.mean(1.0)
        drafting = PROBE_TOKENS * self.draft_times[group.probed].seconds_per_token(load.other_sequences + 1)
        longer = self.step_times.price(load.num_running).mean * max(0.0, drafting - load.other_drafting)
        promised = {option.way: option.goodput for option in group.decision.options}
        own = 1 - promised.get((group.probed,), 0.0) / max(promised.values()) if any(promised.values()) else 0.0
        return longer / (self.step_times.seconds(rows, load.num_running) + longer) + own / load.num_running

    def _load(self, group: Group) -> Load:
        return load_beside(group, self.groups.values(), self.num_running, self.draft_times)


def _tells_the_same(one: Decision, other: Decision) -> bool:
    """Whether they differ in nothing that a request would notice."""
    return (one.way, one.num_draft_tokens, one.fan_out) == (other.way, other.num_draft_tokens, other.fan_out)


def _may_probe(group: Group) -> bool:
    """A gate that is closed for load or temperature does not open by drafting."""
    return group.decision.reason not in (Reason.TEMPERATURE, Reason.RUNNING)
