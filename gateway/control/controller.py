"""Decides for all requests of one verifier how they are drafted. Knows groups of requests and measured times; no link.

Requests of one tenant and one range of temperatures form a group: they share evidence and a decision. It is made anew
every few passes of the group, when load or policy changes, and after a try of a proposer that does not draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from gateway.control.decision import Decision, Known, Reason, decide, usable
from gateway.control.evidence import Evidence, Trial
from gateway.control.goodput import Load
from gateway.control.probing import PROBE_PASSES, Probing
from gateway.control.rate import Rate
from gateway.control.step_times import DraftTimes, StepTimes
from gateway.policy.tenants import Tenant
from slipstream.exchange import Commit, StepReport
from slipstream.proposers.ngram import NAME as NGRAM

DECIDE_PASSES: Final = 16  # of a group, or two of each of its requests if that is more
PROBE_TOKENS: Final = 4  # K of a try
GATED: Final = "gated"  # the range of temperatures above the tenant's gate
_OLD_PASSES: Final = 8.0  # what evidence is worth once its proposer has not drafted for long

NOT_YET: Final = Decision(way=(), num_draft_tokens=0, fan_out=0, reason=Reason.COLD)

OnChange = Callable[["Group", Decision], None]  # the group, and what was decided before


class Kind(NamedTuple):
    """What a group's requests have in common."""

    tenant: str
    temperature: str  # a range


class Member(Protocol):
    """One running request."""

    @property
    def tells(self) -> bool:
        """Whether what its tokens show may steer other requests."""

    def take_up(self, decision: Decision) -> None:
        """From the next pass on."""

    def take_up_policy(self) -> None:
        """The policy may have changed."""


@dataclass(slots=True, eq=False)
class Group:
    kind: Kind
    policy: Tenant
    decision: Decision = NOT_YET
    evidence: Evidence = field(default_factory=Evidence)
    members: dict[Member, None] = field(default_factory=dict)  # ordered
    rows: Rate = field(default_factory=lambda: Rate(0.95, 1.0))  # tokens fed in one pass
    tokens: Rate = field(default_factory=lambda: Rate(0.95, 1.0))  # committed in one pass
    probing: Probing = field(default_factory=Probing)
    prober: Member | None = None
    probed: str = ""  # who is being tried
    passes: int = 0  # since the last decision
    probe_passes: int = 0  # of the prober, since the try began


class Controller:
    def __init__(
        self,
        address: str,
        offered: Callable[[], Collection[str]],  # proposers of the drafters that are known
        on_change: OnChange = lambda group, before: None,
    ) -> None:
        self.address = address
        self._offered = offered
        self.groups: dict[Kind, Group] = {}
        self.step_times = StepTimes()
        self.draft_times: defaultdict[str, DraftTimes] = defaultdict(DraftTimes)
        self.num_running = 0
        self._tokens_each = Rate(0.98, 1.0)  # of a step, for each sequence that runs; prompts included
        self._on_change = on_change
        self._step: StepReport | None = None  # the last one: all commits of a step come with the same report

    def join(self, member: Member, kind: Kind, policy: Tenant) -> Decision:
        """How it is drafted from its first pass on."""
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = Group(kind, policy)
            group.decision = self._decide(group)
        if group.policy != policy:
            group.policy = policy
            self.reconsider(group)
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

    def note_pass(self, member: Member, kind: Kind, commit: Commit, step: StepReport, remotes: list[str]) -> None:
        """`remotes`: who was asked, elsewhere, to draft for this pass."""
        group = self.groups[kind]
        self._note_step(step)
        group.rows.add(1 + commit.num_draft_tokens)
        group.tokens.add(len(commit.token_ids))
        if member.tells:
            group.evidence.note_pass(commit, remotes)
        self._count_pass(group, member)

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
        return self.step_times.seconds(num_sequences * self._tokens_each.mean(1.0))

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

    def _note_step(self, step: StepReport) -> None:
        if step is self._step:
            return
        self._step = step
        if step.step_us:
            self.step_times.note(step.num_tokens, step.step_us * 1e-6)
        self._tokens_each.add(step.num_tokens / max(1, step.num_running))
        before, self.num_running = self.num_running, step.num_running
        if _magnitude(before) != _magnitude(self.num_running):
            for group in self.groups.values():
                if group.members:
                    self.reconsider(group)

    def _count_pass(self, group: Group, member: Member) -> None:
        group.passes += 1
        if member is group.prober:
            group.probe_passes += 1
            if group.probe_passes >= PROBE_PASSES:
                self._end_probe(group)
        elif group.prober is None and _may_probe(group) and group.probing.is_due():
            self._begin_probe(group, self._silent(group))
        if group.prober is None and group.passes >= max(DECIDE_PASSES, 2 * len(group.members)):
            self.reconsider(group)

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
        if not _tells_the_same(before, group.decision):
            return  # all have been told
        group.probing.note_end(changed=False)
        if prober in group.members:
            prober.take_up(group.decision)

    def _load(self, group: Group) -> Load:
        """What runs besides: other groups as they were of late, and what other gateways sent as plain sequences."""
        running = max(1, self.num_running)
        own = max(1, min(len(group.members), running))
        others = [other for other in self.groups.values() if other is not group and other.members]
        sizes = [len(other.members) for other in others]
        unknown = max(0, running - own - sum(sizes))
        rows = sum(size * other.rows.mean(1.0) for size, other in zip(sizes, others, strict=True))
        tokens = sum(size * other.tokens.mean(1.0) for size, other in zip(sizes, others, strict=True))
        return Load(num_sequences=own, other_rows=rows + unknown, other_tokens=tokens + unknown, is_lone=running == 1)


def _tells_the_same(one: Decision, other: Decision) -> bool:
    """Whether they differ in nothing that a request would notice."""
    return (one.way, one.num_draft_tokens, one.fan_out) == (other.way, other.num_draft_tokens, other.fan_out)


def _may_probe(group: Group) -> bool:
    """A gate that is closed for load or temperature does not open by drafting."""
    return group.decision.reason not in (Reason.TEMPERATURE, Reason.RUNNING)


def _magnitude(num_running: int) -> int:
    """Load counts as changed when it doubles or halves."""
    return num_running.bit_length()
