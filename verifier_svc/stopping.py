"""Decides at which token a sequence's output ends. Knows tokens and their text; knows nothing of drafts or passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slipstream.request import FinishReason, SequenceRequest
from slipstream.text.detokenizer import Detokenizer
from slipstream.text.stop_strings import StopMatcher
from slipstream.text.tokenizer import Tokenizer


@dataclass(slots=True)
class Taken:
    """How many of the offered tokens belong to the output, and why it ends there, if it does."""

    num_tokens: int
    finish_reason: FinishReason = FinishReason.NONE
    stop_string: str = ""


class StopRule:
    """Looks at output token by token, as if they had come one at a time. A stop outranks a limit at the same token."""

    def __init__(
        self, request: SequenceRequest, *, eos_token_ids: Collection[int], max_len: int, tokenizer: Tokenizer
    ) -> None:
        """`max_len`: most tokens the sequence may have, prompt included."""
        sampling = request.sampling
        self.stop_token_ids = frozenset(sampling.stop_token_ids) | (
            frozenset() if sampling.ignore_eos else frozenset(eos_token_ids)
        )
        self._num_left = max_len - len(request.token_ids)
        self._matcher = StopMatcher(sampling.stop_strings) if sampling.stop_strings else None
        self._detokenizer = Detokenizer(tokenizer)
        for token_id in request.token_ids[request.num_prompt_tokens :]:
            self._completed_stop_string(token_id)  # a stop string may have begun before the sequence moved here

    def take(self, token_ids: Sequence[int]) -> Taken:
        """Takes the tokens up to the one that ends the output, that one included."""
        for count, token_id in enumerate(token_ids, start=1):
            self._num_left -= 1
            stop_string = self._completed_stop_string(token_id) if self._matcher is not None else ""
            if token_id in self.stop_token_ids or stop_string:
                return Taken(count, FinishReason.STOP, stop_string)
            if self._num_left == 0:
                return Taken(count, FinishReason.LENGTH)
        return Taken(len(token_ids))

    def _completed_stop_string(self, token_id: int) -> str:
        if self._matcher is None:
            return ""
        return self._matcher.feed(self._detokenizer.feed(token_id)).stop_string
