"""One request's side of the controller: what it tells, and how it is drafted. Knows commits; no peer, no proposer.

It begins as its group has decided, and then decides for itself by what its own passes show, which counts the more the
more there were. What steers is final or measured (docs/exactness.md): accepted counts of commits, trials, load, times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.control.controller import Controller
from gateway.control.decision import Decision, Reason, decide
from gateway.control.drafting import Drafting
from gateway.control.evidence import Asked, Evidence, Trial
from gateway.control.group import GATED, NOT_YET, Kind
from gateway.policy.tenants import Tenant
from slipstream.exchange import Commit, StepReport
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import SequenceRequest, VerificationMode

OWN_PASSES: Final = 8  # between two decisions of a request for itself; more where many run, to bound what they cost

_SETTLED: Final = (Reason.PROBE, Reason.TEMPERATURE, Reason.RUNNING, Reason.COLD)
_RANGES: Final = ((0.0, "greedy"), (0.5, "low"), (1.0, "medium"))


class Steering:
    def __init__(
        self,
        request: SequenceRequest,
        policy: Callable[[], Tenant],  # the one in force now
        controller_of: Callable[[str], Controller],  # by the verifier's address
        redraft: Callable[[Drafting], None],
    ) -> None:
        self._request = request
        self._policy = policy
        self._controller_of = controller_of
        self._redraft = redraft
        self._controller: Controller | None = None
        self._kind = self._present_kind()
        self._evidence = Evidence()
        self._decision = NOT_YET  # the group's, its own, or a try
        self._drafting = self._shown(NOT_YET)  # as the session was told
        self._passes = 0
        self._drafting_us = 0  # a drafter's work since the last commit

    @property
    def tells(self) -> bool:
        """In ratio mode requests of one seed share noise, so what one shows must not steer another."""
        request = self._request
        return request.sampling.greedy or request.mode is VerificationMode.COUPLED or not request.shares_seed

    @property
    def recent_output_tokens(self) -> int:
        """Of its tenant's recent output, for n-gram drafts."""
        return self._policy().recent_output_tokens

    @property
    def scores(self) -> bool:
        """Whether it matters how good n-grams are."""
        policy = self._policy()
        return policy.is_controlled or policy.off_below_acceptance > 0

    def open(self, address: str) -> Drafting:
        """On this verifier; before it is opened there."""
        self.close()
        self._controller = self._controller_of(address)
        self._kind = self._present_kind()
        self._decision = self._controller.join(self, self._kind, self._policy())
        self._evidence = Evidence(self._controller.groups[self._kind].evidence)
        self._drafting = self._shown(self._decision)
        return self._drafting

    def close(self) -> None:
        if self._controller is not None:
            self._controller.leave(self, self._kind)
            self._controller = None

    def note_commit(self, commit: Commit, step: StepReport) -> None:
        """One that was not the last."""
        if self._controller is None:
            return
        is_first = not self._passes  # nobody could have drafted for it
        remotes = () if is_first else tuple(name for name in self._drafting.way if name != NGRAM)
        asked = Asked(remotes, self._drafting.num_draft_tokens, self._drafting_us * 1e-6)
        self._drafting_us = 0
        self._evidence.note_pass(commit, asked)
        for name in self._request.proposers:
            if name not in (NGRAM, *remotes):
                self._evidence.fade(name)
        self._controller.note_pass(self, self._kind, commit, step, asked)
        self._passes += 1
        num_members = len(self._controller.groups[self._kind].members)
        if self._passes % max(OWN_PASSES, num_members // 2) == 0 and self._decision.reason not in _SETTLED:
            self._set(self._own(self._decision))

    def note_trial(self, trial: Trial) -> None:
        self._evidence.note_trial(trial)
        if self._controller is not None and self.tells:
            self._controller.note_trial(self._kind, trial)

    def note_drafts(self, proposer: str, *, draft_us: int, wire_us: int) -> None:
        self._drafting_us += draft_us
        if self._controller is not None:
            k = self._drafting.num_draft_tokens
            self._controller.note_drafts(proposer, draft_us=draft_us, wire_us=wire_us, num_draft_tokens=k)

    def take_up(self, decision: Decision) -> None:
        self._set(decision if decision.reason in _SETTLED else self._own(decision))

    def take_up_policy(self) -> None:
        """The tenant's policy may have changed; what it was opened with, mode and limits, stays."""
        if self._controller is not None:
            controller = self._controller
            controller.leave(self, self._kind)
            self._kind = self._present_kind()
            self._set(controller.join(self, self._kind, self._policy()))

    def _own(self, decision: Decision) -> Decision:
        """The decision for this request by itself, where the controller may choose."""
        controller, policy = self._controller, self._policy()
        if controller is None or not policy.is_controlled:
            return decision
        return decide(policy, controller.known(controller.groups[self._kind], self._evidence), self._decision)

    def _set(self, decision: Decision) -> None:
        self._decision = decision
        before, self._drafting = self._drafting, self._shown(decision)
        if self._drafting != before:
            self._redraft(self._drafting)

    def _shown(self, decision: Decision) -> Drafting:
        """To the session, within what the sequence was opened with."""
        way = tuple(name for name in decision.way if name in self._request.proposers)
        has_remote = any(name != NGRAM for name in way)
        return Drafting(
            way=way if decision.num_draft_tokens else (),
            num_draft_tokens=decision.num_draft_tokens if way else 0,
            fan_out=decision.fan_out if has_remote else 0,
            max_wait_us=round(self._policy().max_wait_ms * 1000) if has_remote else 0,
        )

    def _present_kind(self) -> Kind:
        temperature = self._request.sampling.temperature
        if temperature > self._policy().off_above_temperature:
            return Kind(self._request.tenant, GATED)
        found = next((name for most, name in _RANGES if temperature <= most), "high")
        return Kind(self._request.tenant, found)
