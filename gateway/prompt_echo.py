"""The prompt as its caller gets it back: ids, text, log probabilities, in parts. Knows tokens; no peer, no client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.completion import PromptPart
from slipstream.exchange import PromptLogprobs, TokenLogprobs
from slipstream.text.detokenizer import Detokenizer
from slipstream.text.tokenizer import Tokenizer

MAX_PART_TOKENS = 1024  # with 20 likeliest tokens each, a message of 200 KB


class PromptEcho:
    """Sends each token once, with its log probability if asked for, also when a move has the prompt scored again."""

    def __init__(
        self, token_ids: Sequence[int], tokenizer: Tokenizer, *, echo: bool = False, logprobs: bool = False
    ) -> None:
        self._token_ids = token_ids
        self._detokenizer = Detokenizer(tokenizer) if echo else None
        self._awaits_logprobs = logprobs and len(token_ids) > 1
        self._num_sent = 0 if echo or logprobs else len(token_ids)

    @property
    def is_complete(self) -> bool:
        return self._num_sent == len(self._token_ids)

    def begin(self) -> Iterator[PromptPart]:
        """What can be sent before anything is computed."""
        while not self._awaits_logprobs and not self.is_complete:
            yield self._part(min(self._num_sent + MAX_PART_TOKENS, len(self._token_ids)), None)

    def add(self, scores: PromptLogprobs) -> Iterator[PromptPart]:
        """What the next scores make known."""
        if not self._awaits_logprobs:
            return
        for start in range(scores.start, scores.start + len(scores.logprobs), MAX_PART_TOKENS):
            known = scores.logprobs[start - scores.start :][:MAX_PART_TOKENS]
            end = start + len(known)
            if end > self._num_sent:
                yield self._part(end, known[max(0, self._num_sent - start) :])

    def _part(self, end: int, logprobs: TokenLogprobs | None) -> PromptPart:
        """From the first token that was not sent, up to position `end`."""
        token_ids = list(self._token_ids[self._num_sent : end])
        self._num_sent = end
        return PromptPart(token_ids=token_ids, text=self._text(token_ids), logprobs=logprobs)

    def _text(self, token_ids: Sequence[int]) -> str:
        if self._detokenizer is None:
            return ""
        text = "".join(map(self._detokenizer.feed, token_ids))
        return text + self._detokenizer.finish() if self.is_complete else text
