"""What all verifiers together can do: sequences at one time, and what more of them cost. Knows reports; no request."""

from __future__ import annotations

from gateway.control.controllers import Controllers
from gateway.peers.peers import VerifierPool


class VerifierCapacity:
    def __init__(self, verifiers: VerifierPool, controllers: Controllers) -> None:
        self._verifiers = verifiers
        self._controllers = controllers

    @property
    def num_seqs(self) -> int:
        """Of those that are there now; 0 if one of them does not say."""
        told = [link.info.max_num_seqs for link in self._verifiers.available if link.info is not None]
        return sum(told) if all(told) else 0

    def slowdown(self, many: int, few: int) -> float:
        """Of a step, with so many sequences instead of so few spread over all of them; where it is worst."""
        number = max(1, len(self._verifiers.available))
        steps = [one for one in self._controllers.all if one.step_times.known]
        return max((one.step_seconds(many / number) / one.step_seconds(few / number) for one in steps), default=1.0)
