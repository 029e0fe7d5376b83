"""What the client gets of one sample, made from commits: text, counts, times. Knows the client's queue; no peer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gateway.client_stream import ClientStream
from gateway.completion import Delta, PromptPart
from gateway.ledger import Ledger
from gateway.prompt_echo import PromptEcho
from gateway.watch.streams import CommitText
from slipstream.exchange import Commit, PromptLogprobs, StepReport
from slipstream.request import FinishReason


class Output:
    def __init__(
        self,
        text: CommitText,
        ledger: Ledger,
        stream: ClientStream,
        charge: Callable[[int], None],
        prompt: PromptEcho,
        index: int = 0,
    ) -> None:
        self._text = text
        self.ledger = ledger
        self.stream = stream
        self._charge = charge  # called with the number of tokens of each commit
        self._prompt = prompt
        self.index = index  # which of the request's samples

    @property
    def awaits_prompt(self) -> bool:
        """Whether a part of the prompt is still to be sent."""
        return not self._prompt.is_complete

    def begin(self) -> None:
        """Sends what is known of the prompt before it is computed."""
        self._send_prompt(self._prompt.begin())

    def publish_prompt(self, scores: PromptLogprobs) -> None:
        self._send_prompt(self._prompt.add(scores))

    def _send_prompt(self, parts: Iterable[PromptPart]) -> None:
        for part in parts:
            self.stream.put(Delta(index=self.index, prompt=part))

    def publish(self, commit: Commit, step: StepReport) -> None:
        """Raises TooSlow if the client is."""
        now = time.monotonic()
        self.ledger.record_commit(commit, step, now)
        self._charge(len(commit.token_ids))
        text, text_lengths = self._text.feed(commit)
        delta = Delta(
            text=text,
            text_lengths=text_lengths,
            token_ids=list(commit.token_ids),
            drafted=[i < commit.num_accepted for i in range(len(commit.token_ids))],
            index=self.index,
            logprobs=commit.logprobs,
        )
        if commit.finish_reason is not FinishReason.NONE:
            delta.finish_reason = commit.finish_reason
            delta.usage, delta.timings = self.ledger.usage, self.ledger.timings(now)
        self.stream.put(delta)

    def fail(self, error: Exception) -> None:
        self.stream.fail(error)
