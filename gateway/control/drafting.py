"""How a sequence is drafted now, and the bounds sent to the services. Knows names and bounds; no policy, no peer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.exchange import Update
from slipstream.request import SequenceRequest


@dataclass(frozen=True, slots=True)
class Drafting:
    way: tuple[str, ...]  # who drafts, in order, of those that the sequence was opened with; () is nobody
    num_draft_tokens: int
    fan_out: int
    max_wait_us: int

    def update(self, sequence_id: int) -> Update:
        return Update(sequence_id, self.num_draft_tokens, self.fan_out, self.max_wait_us)

    def applied_to(self, request: SequenceRequest) -> SequenceRequest:
        """As it is opened, or opened again elsewhere."""
        return replace(
            request,
            num_draft_tokens=self.num_draft_tokens,
            fan_out=self.fan_out,
            max_wait_us=self.max_wait_us,
        )
