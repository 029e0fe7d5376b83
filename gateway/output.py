"""What one request's client gets, made from commits: text, counts, times. Knows the client's queue; no peer."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.client_stream import ClientStream
from gateway.completion import Delta
from gateway.completion_text import CompletionText
from gateway.ledger import Ledger
from slipstream.exchange import Commit, StepReport
from slipstream.request import FinishReason


class Output:
    def __init__(
        self, text: CompletionText, ledger: Ledger, stream: ClientStream, charge: Callable[[int], None]
    ) -> None:
        self._text = text
        self.ledger = ledger
        self.stream = stream
        self._charge = charge  # is told of every token

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
        )
        if commit.finish_reason is not FinishReason.NONE:
            delta.finish_reason = commit.finish_reason
            delta.usage, delta.timings = self.ledger.usage, self.ledger.timings(now)
        self.stream.put(delta)

    def fail(self, error: Exception) -> None:
        self.stream.fail(error)
