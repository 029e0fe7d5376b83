"""The wire's figures from counts that are known, and models of which one drafts for the other without a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.bench_wire import Hops, make_models, measure
from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.kernels.batch import Chunk


def test_the_share_of_the_gateway_is_what_a_direct_link_would_save() -> None:
    base = {"streams": 1, "tokens_per_second": 1.0, "num_round_trips": 1, "host_us": {}, "bytes_each": {}}
    base["drafter_trip_ms"] = 1.5
    assert Hops(**base, round_trip_ms=5.0, held_ms=3.0).gateway_share == 0.25  # type: ignore[arg-type]
    assert Hops(**base, round_trip_ms=0.0, held_ms=3.0).gateway_share == 0.0  # type: ignore[arg-type]


def test_the_draft_model_says_what_the_target_says(tmp_path: Path) -> None:
    logits = []
    for model in make_models(tmp_path):
        runner = make_runner(EngineConfig(model=model, dtype="float32", num_kv_blocks=2))
        logits.append(runner.forward([Chunk((5, 6, 7), 0, (0,), 3)]))
    torch.testing.assert_close(*logits)


@pytest.mark.slow
def test_a_lone_stream_and_several_are_measured() -> None:
    for hops in measure((1, 4), seconds=2.0):
        assert hops.tokens_per_second > 0
        assert hops.round_trip_ms > 0
        assert all(num_bytes > 0 for num_bytes in hops.bytes_each.values())
        assert hops.bytes_each["draft, drafter to gateway"] > 100  # laws are most of it
