"""Who observes what the verifier's calls do: counts, a timeline, traces. Knows no call."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from slipstream.sequence_log import SequenceLog
from slipstream.telemetry.sequences import SequenceSpans
from slipstream.telemetry.spans import NO_TRACER, Tracer
from slipstream.timeline import NO_TIMELINE, Timeline
from verifier_svc.metrics import VerifierMetrics


@dataclass(frozen=True, slots=True)
class Observers:
    metrics: VerifierMetrics
    timeline: Timeline = NO_TIMELINE
    tracer: Tracer = NO_TRACER

    def sequence_log(self, logger: logging.Logger) -> SequenceLog:
        """Of one stream."""
        spans = SequenceSpans(self.tracer, "verifier", "verify", first_is_prefill=True)
        return SequenceLog(logger, self.metrics.sequences, spans)
