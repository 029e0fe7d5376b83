"""How far one sequence may be drafted: output, context, tokens that can be fed. Knows counts and ids; no paths."""

from __future__ import annotations

from collections.abc import Sequence

from drafter_svc.proposers.proposer import Limits
from slipstream.request import SequenceRequest


class DraftBounds:
    def __init__(self, request: SequenceRequest, limits: Limits) -> None:
        self.num_draft_tokens = request.num_draft_tokens  # K
        self._most_output = (
            request.num_prompt_tokens + request.sampling.max_tokens - 1
        )  # the last is the verifier's own
        self._limits = limits
        self._can_feed = True
        self.note(request.token_ids)

    def note(self, token_ids: Sequence[int]) -> None:
        """Tokens became final; one that cannot be fed ends drafting for good."""
        self._can_feed = self._can_feed and all(0 <= token_id < self._limits.vocab_size for token_id in token_ids)

    def is_over(self, num_committed: int) -> bool:
        """Whether nothing will ever be drafted again."""
        return not self._can_feed or num_committed >= self._limits.max_model_len

    def goal(self, num_before: int) -> int:
        """Draft tokens worth having after `num_before` tokens."""
        if not self._can_feed:
            return 0
        left = min(self._limits.max_model_len, self._most_output) - num_before
        return max(0, min(self.num_draft_tokens, left))
