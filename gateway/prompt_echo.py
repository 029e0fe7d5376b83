"""The prompt as its caller gets it back: ids, text, log probabilities, in parts. Knows tokens; no peer, no client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.completion import PromptPart
from slipstream.exchange import PromptLogprobs, TokenLogprobs
from slipstream.text.detokenizer import Detokenizer
from slipstream.text.tokenizer import Tokenizer

MAX_PART_TOKENS = 1024  # with 20 likeliest tokens each, a message of 200 KB


class PromptEcho:
    """Each token is told once, with its log probability where these were asked for; a move tells them anew."""

    def __init__(
        self, token_ids: Sequence[int], tokenizer: Tokenizer, *, echo: bool = False, logprobs: bool = False
    ) -> None:
        self._token_ids = token_ids
        self._detokenizer = Detokenizer(tokenizer) if echo else None
        self._awaits_logprobs = logprobs and len(token_ids) > 1
        self._num_told = 0 if echo or logprobs else len(token_ids)

    @property
    def is_told(self) -> bool:
        return self._num_told == len(self._token_ids)

    def begin(self) -> Iterator[PromptPart]:
        """What can be told before anything is computed."""
        while not self._awaits_logprobs and not self.is_told:
            yield self._part(min(self._num_told + MAX_PART_TOKENS, len(self._token_ids)), None)

    def add(self, scores: PromptLogprobs) -> Iterator[PromptPart]:
        """What the next scores make known."""
        if not self._awaits_logprobs:
            return
        for start in range(scores.start, scores.start + len(scores.logprobs), MAX_PART_TOKENS):
            told = scores.logprobs[start - scores.start :][:MAX_PART_TOKENS]
            end = start + len(told)
            if end > self._num_told:
                yield self._part(end, told[max(0, self._num_told - start) :])

    def _part(self, end: int, logprobs: TokenLogprobs | None) -> PromptPart:
        """From the first token that is not told, up to position `end`."""
        token_ids = list(self._token_ids[self._num_told : end])
        self._num_told = end
        return PromptPart(token_ids=token_ids, text=self._text(token_ids), logprobs=logprobs)

    def _text(self, token_ids: Sequence[int]) -> str:
        if self._detokenizer is None:
            return ""
        text = "".join(map(self._detokenizer.feed, token_ids))
        return text + self._detokenizer.finish() if self.is_told else text
