"""What is noted of a sample that has ended: counts, a line in the log, a span, an event. Knows no peer, no client."""

from __future__ import annotations

import time

from gateway.output import Output
from gateway.request_log import log_ended, outcome_of
from gateway.request_spans import RequestSpans
from gateway.session import Ended
from gateway.watch.feed import Feed
from gateway.watch.streams import publish_end


def note_end(ended: Ended, output: Output, spans: RequestSpans, feed: Feed) -> None:
    """Once, however it ended."""
    now, ledger, outcome = time.monotonic(), output.ledger, outcome_of(ended)
    ledger.record_end(outcome, now)
    timings = ledger.timings(now)
    log_ended(spans.request_id, ledger.tenant, outcome, ledger.usage, timings, sample=output.index)
    spans.ended(output.index, outcome, ledger.usage, timings)
    publish_end(feed, spans.request_id, output.index, outcome)
