"""Twice as many requests as can be served: a short run of bench/overload.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.overload import SPARE, Setting, measure
from tests.tiny_models import make_checkpoint


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_overload_refuses_and_leaves_the_admitted_alone(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", layers=8, hidden=256, max_position_embeddings=1024)
    setting = Setting(model=model, seconds=60.0, capacity_seconds=20.0, max_queued=8)
    result = measure(setting)
    assert set(result.num_refused) == {"RESOURCE_EXHAUSTED"}
    assert result.retry_after_p50_ms > 0
    assert result.most_queued <= setting.max_queued
    assert result.most_running <= setting.num_places + SPARE
    assert result.requests_per_second_served > 0.6 * result.requests_per_second_at_capacity
    assert result.tpot_ratio < 2.0  # 1.3 where nothing else runs; bench/overload.py judges that
    assert result.memory_ratio < 1.1
