"""Requests that are drafted alike: what they share, and how they load a verifier. Knows counts; decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from gateway.control.decision import Decision, Reason
from gateway.control.evidence import Evidence
from gateway.control.goodput import Load
from gateway.control.probing import Probing
from gateway.control.rate import Rate
from gateway.control.step_times import DraftTimes
from gateway.policy.tenants import Tenant

GATED: Final = "gated"  # the range of temperatures above the tenant's gate
NOT_YET: Final = Decision(way=(), num_draft_tokens=0, fan_out=0, reason=Reason.COLD)


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
    elsewhere: Rate = field(default_factory=lambda: Rate(0.95, 1.0))  # share of passes that a drafter was asked for
    probing: Probing = field(default_factory=Probing)
    prober: Member | None = None
    probed: str = ""  # who is being tried
    passes: int = 0  # since the last decision
    probe_passes: int = 0  # of the prober, since the try began

    @property
    def num_elsewhere(self) -> float:
        """Sequences that a drafter elsewhere drafts for, one that is tried included."""
        return len(self.members) * self.elsewhere.mean(0.0)

    def drafting_seconds(self, times: Mapping[str, DraftTimes], rows: float) -> float:
        """Its share of those for which a drafter elsewhere works in each pass, for so many sequences in all."""
        each = [times[name].seconds_per_token(rows) for name in self.decision.way if name in times]
        return self.num_elsewhere / rows * self.decision.num_draft_tokens * max(each, default=0.0)


def load_beside(group: Group, groups: Collection[Group], num_running: int, times: Mapping[str, DraftTimes]) -> Load:
    """What runs besides: other groups as they were of late, and what other gateways sent as plain sequences.

    A step of one sequence with more of them open is the first of a burst; what pays for a lone one is not begun then.
    """
    others = [other for other in groups if other is not group and other.members]
    sizes = [len(other.members) for other in others]
    running = num_running if num_running > 1 else max(1, len(group.members) + sum(sizes))
    own = max(1, min(len(group.members), running))
    unknown = max(0, running - own - sum(sizes))
    drafted = sum(other.num_elsewhere for other in others)
    return Load(
        num_sequences=own,
        other_rows=unknown + sum(len(other.members) * other.rows.mean(1.0) for other in others),
        other_tokens=unknown + sum(len(other.members) * other.tokens.mean(1.0) for other in others),
        other_sequences=drafted,
        other_drafting=sum(other.drafting_seconds(times, own + drafted) for other in others),
        num_running=running,
        is_lone=running == 1,
    )
