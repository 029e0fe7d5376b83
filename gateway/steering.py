"""One request's side of the controller: what it tells, and how it is drafted. Knows commits; no peer, no proposer.

The group's decision says who drafts and how much; within it a request drafts less, or not at all, if its own passes
say so. What steers is final or measured (docs/exactness.md): accepted counts of commits, trials, load, times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.controller import GATED, Controller, Kind
from gateway.decision import ADJUST_GAIN, SWITCH_GAIN, Decision, Reason, sources_of
from gateway.drafting import Drafting
from gateway.evidence import Evidence, Trial
from gateway.goodput import best_num_tokens, goodput
from gateway.tenants import Tenant
from slipstream.exchange import Commit, StepReport
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import SequenceRequest, VerificationMode

OWN_PASSES: Final = 8  # between two looks at a request's own acceptance

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
        self._decision: Decision | None = None  # the group's, or a try
        self._num_draft_tokens = 0  # its own K within it
        self._passes = 0

    @property
    def tells(self) -> bool:
        """In ratio mode requests of one seed share noise, so what one shows must not steer another."""
        request = self._request
        return request.sampling.greedy or request.mode is VerificationMode.COUPLED or not request.shares_seed

    @property
    def scores(self) -> bool:
        """Whether it matters how good n-grams are."""
        policy = self._policy()
        return policy.is_controlled or policy.off_below_acceptance > 0

    @property
    def drafting(self) -> Drafting:
        decision, num_draft_tokens = self._decision, self._num_draft_tokens
        assert decision is not None, "opened first"
        way = tuple(name for name in decision.way if name in self._request.proposers) if num_draft_tokens else ()
        waits = any(name != NGRAM for name in way)
        return Drafting(
            way=way,
            num_draft_tokens=num_draft_tokens if way else 0,
            fan_out=decision.fan_out if waits else 0,
            max_wait_us=round(self._policy().max_wait_ms * 1000) if waits else 0,
        )

    def open(self, address: str) -> Drafting:
        """On this verifier; before it is opened there."""
        self.close()
        self._controller = self._controller_of(address)
        self._kind = self._present_kind()
        self._set(self._controller.join(self, self._kind, self._policy()))
        self._evidence = Evidence(self._controller.groups[self._kind].evidence)
        return self.drafting

    def close(self) -> None:
        if self._controller is not None:
            self._controller.leave(self, self._kind)
            self._controller = None

    def note_commit(self, commit: Commit, step: StepReport) -> None:
        """One that was not the last."""
        if self._controller is None:
            return
        is_first = not self._passes  # nobody could have drafted for it
        remotes = [] if is_first else [name for name in self.drafting.way if name != NGRAM]
        self._evidence.note_pass(commit, remotes)
        if not commit.num_draft_tokens:
            self._evidence.fade()
        self._controller.note_pass(self, self._kind, commit, step, remotes)
        self._passes += 1
        if self._passes % OWN_PASSES == 0:
            self._adjust()

    def note_trial(self, trial: Trial) -> None:
        self._evidence.note_trial(trial)
        if self._controller is not None and self.tells:
            self._controller.note_trial(self._kind, trial)

    def note_drafts(self, proposer: str, *, draft_us: int, wire_us: int) -> None:
        if self._controller is not None:
            times = self._controller.draft_times[proposer]
            times.note(draft_us=draft_us, wire_us=wire_us, num_draft_tokens=self._num_draft_tokens)

    def take_up(self, decision: Decision) -> None:
        before = self.drafting
        self._set(decision)
        if self.drafting != before:
            self._redraft(self.drafting)

    def take_up_policy(self) -> None:
        """The tenant's policy may have changed; what it was opened with, mode and limits, stays."""
        if self._controller is None:
            return
        before, controller = self.drafting, self._controller
        controller.leave(self, self._kind)
        self._kind = self._present_kind()
        self._set(controller.join(self, self._kind, self._policy()))
        if self.drafting != before:
            self._redraft(self.drafting)

    def _set(self, decision: Decision) -> None:
        self._decision, self._num_draft_tokens = decision, decision.num_draft_tokens

    def _adjust(self) -> None:
        """Its own K, where the controller may choose and this request is not being used for a try."""
        decision, controller = self._decision, self._controller
        if controller is None or decision is None or decision.is_off or decision.reason is Reason.PROBE:
            return
        policy = self._policy()
        if not policy.is_controlled or not controller.step_times.known:
            return
        before = self.drafting
        self._num_draft_tokens = self._best_own(policy, decision, controller)
        if self.drafting != before:
            self._redraft(self.drafting)

    def _best_own(self, policy: Tenant, decision: Decision, controller: Controller) -> int:
        group, held = controller.groups[self._kind], self._num_draft_tokens
        known = controller.known(group, self._evidence)
        sources = sources_of(decision.way, known, policy.num_draft_tokens)

        def promise(num_draft_tokens: int) -> float:
            return goodput(sources if num_draft_tokens else (), num_draft_tokens, known.load, known.step_times)

        lowest = max(1, policy.min_draft_tokens)
        best, promised = best_num_tokens(sources, lowest, policy.num_draft_tokens, known.load, known.step_times)
        if promise(0) > (SWITCH_GAIN if held else 1 / SWITCH_GAIN) * promised:
            return 0
        return best if not held or promised > ADJUST_GAIN * promise(held) else held

    def _present_kind(self) -> Kind:
        temperature = self._request.sampling.temperature
        if temperature > self._policy().off_above_temperature:
            return Kind(self._request.tenant, GATED)
        found = next((name for most, name in _RANGES if temperature <= most), "high")
        return Kind(self._request.tenant, found)
