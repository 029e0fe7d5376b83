"""What counting one pass costs the thread that drives the verifier, beside the same with prometheus_client's classes.

python bench/metrics.py
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from slipstream.exchange import Commit
from slipstream.metrics.instruments import SECONDS
from verifier_svc.metrics import VerifierMetrics

COMMIT = Commit(1, 10, (5, 6, 7), num_accepted=2, num_draft_tokens=4, proposer="draft_model", hit=True, wait_us=90)
RUNS = 20_000
TENANT_AND_PROPOSER = ("tenant", "proposer")
COUNTERS = ("passes", "cut", "committed", "drafts", "draft_tokens", "accepted", "ready", "hits")


def microseconds(record: Callable[[], None]) -> float:
    """Of one call, the best of five rounds."""
    rounds = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(RUNS):
            record()
        rounds.append((time.perf_counter() - started) / RUNS * 1e6)
    return min(rounds)


def by_library() -> Callable[[], None]:
    """As many updates as one pass needs, children looked up by label as they must be."""
    registry = CollectorRegistry()
    counters = [Counter(name, name, TENANT_AND_PROPOSER, registry=registry) for name in COUNTERS]
    position = Counter("position", "position", (*TENANT_AND_PROPOSER, "position"), registry=registry)
    wait = Histogram("wait", "wait", TENANT_AND_PROPOSER, registry=registry, buckets=SECONDS)

    def record() -> None:
        for counter in counters:
            counter.labels("acme", COMMIT.proposer).inc()
        for i in range(COMMIT.num_accepted):
            position.labels("acme", COMMIT.proposer, str(i)).inc()
        wait.labels("acme", COMMIT.proposer).observe(COMMIT.wait_us * 1e-6)

    return record


def main() -> None:
    metrics = VerifierMetrics()
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}; one pass, 2 of 4 accepted"
    )
    print(f"ours               {microseconds(lambda: metrics.record_pass('acme', COMMIT, had_room=True)):6.2f} us")
    print(f"prometheus_client  {microseconds(by_library()):6.2f} us")


if __name__ == "__main__":
    main()
