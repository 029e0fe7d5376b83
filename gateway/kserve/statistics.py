"""How many requests each model was asked over KServe, and how long they took. Knows timings; knows no request."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.completion import Timings
from gateway.kserve.model import VERSION


@dataclass(slots=True)
class _Tally:
    num_done: int = 0
    done_us: int = 0
    queue_us: int = 0
    num_failed: int = 0
    failed_us: int = 0
    last_ms: int = 0  # since 1970


class Statistics:
    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def record_done(self, model: str, timings: Timings) -> None:
        tally = self._of(model)
        tally.num_done += 1
        tally.done_us += timings.total_us
        tally.queue_us += timings.queue_us

    def record_failed(self, model: str, seconds: float) -> None:
        tally = self._of(model)
        tally.num_failed += 1
        tally.failed_us += round(seconds * 1e6)

    def to_wire(self, model: str) -> Any:
        tally, duration = self._tallies.get(model, _Tally()), service_pb2.StatisticDuration
        compute_us = max(0, tally.done_us - tally.queue_us)
        stats = service_pb2.InferStatistics(
            success=duration(count=tally.num_done, ns=tally.done_us * 1000),
            fail=duration(count=tally.num_failed, ns=tally.failed_us * 1000),
            queue=duration(count=tally.num_done, ns=tally.queue_us * 1000),
            compute_infer=duration(count=tally.num_done, ns=compute_us * 1000),
        )
        return service_pb2.ModelStatistics(
            name=model,
            version=VERSION,
            last_inference=tally.last_ms,
            inference_count=tally.num_done,
            execution_count=tally.num_done,
            inference_stats=stats,
        )

    def _of(self, model: str) -> _Tally:
        tally = self._tallies.setdefault(model, _Tally())
        tally.last_ms = round(time.time() * 1e3)
        return tally
