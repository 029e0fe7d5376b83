"""What became of each sequence that was opened on a stream: for log, counts and traces. Knows no tokens."""

from __future__ import annotations

import logging
from typing import Final

from slipstream import logs
from slipstream.exchange import Commit, SequenceFailure
from slipstream.metrics.instruments import Counter
from slipstream.request import FinishReason, SequenceRequest
from slipstream.telemetry.sequences import SequenceSpans
from slipstream.wire.status import to_status

CLOSED: Final = "CLOSED"  # the gateway wanted no more of it
STREAM_ENDED: Final = "STREAM_ENDED"


def sequences_counter() -> Counter:
    return Counter("slipstream_sequences", "Sequences that ended, by how.", ("tenant", "outcome"))


class SequenceLog:
    """Of one stream. What it does not know as open has been told before, and is not told again."""

    def __init__(self, logger: logging.Logger, ended: Counter, spans: SequenceSpans | None = None) -> None:
        self.spans = spans or SequenceSpans()
        self._logger = logger
        self._ended = ended
        self._open: dict[int, SequenceRequest] = {}

    def opened(self, request: SequenceRequest) -> None:
        self._open[request.sequence_id] = request
        self.spans.opened(request)

    def committed(self, commit: Commit) -> None:
        if commit.finish_reason is not FinishReason.NONE:
            self._end(commit.sequence_id, commit.finish_reason.name)

    def failed(self, failure: SequenceFailure) -> None:
        code, text = to_status(failure.error)
        self._end(failure.sequence_id, code.name, text)

    def closed(self, sequence_id: int) -> None:
        self._end(sequence_id, CLOSED)

    def stream_ended(self) -> None:
        for sequence_id in list(self._open):
            self._end(sequence_id, STREAM_ENDED)

    def _end(self, sequence_id: int, outcome: str, reason: str = "") -> None:
        request = self._open.pop(sequence_id, None)
        if request is None:
            return
        self._ended.add(1, request.tenant, outcome)
        self.spans.ended(sequence_id, outcome, reason)
        told = logs.fields(
            request=request.request_id, tenant=request.tenant, sequence=sequence_id, end=outcome, reason=reason
        )
        self._logger.info("sequence", extra=told)
