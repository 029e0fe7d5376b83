"""The sweep: which points are measured, and what is told of them."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.bench_serving import line, measure, plain_beside, plot
from bench.clients import Felt
from bench.live_services import Drafter, Services
from bench.scraped import Scraped
from bench.serving_point import Point, Policy, make_point
from bench.serving_sweep import Sweep
from launcher.topology import PLACEMENTS
from tests.tiny_models import make_checkpoint

SWEEP = Sweep(proposers=("ngram", "draft_model"), streams=(1, 8))
NOTHING = {"verifier": Scraped({}), "gateway": Scraped({})}


def made(policy: Policy, streams: int, num_tokens: int) -> Point:
    felt = Felt(seconds=1.0, num_tokens=num_tokens)
    return make_point(policy, felt, NOTHING, temperature=0.0, streams=streams, overlaps=True)


def test_a_rate_is_told_beside_the_plain_one_of_the_same_load() -> None:
    plain = [made(Policy(proposer="none"), streams, 10 * streams) for streams in (1, 8)]
    drafted = made(Policy(proposer="ngram", num_draft_tokens=4), 8, 120)
    assert plain_beside(drafted, plain) is plain[1]
    assert line(drafted, plain[1]).split()[3:5] == ["120.0", "1.50"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_plot_is_written(tmp_path: Path) -> None:
    points = [made(policy, streams, 10) for policy in SWEEP.policies() for streams in SWEEP.streams]
    plot(points, tmp_path / "gain.png")
    assert (tmp_path / "gain.png").stat().st_size > 1000


def test_nothing_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.bench_serving.running", lambda services, tenants: nullcontext())
    assert list(measure(Services(model=Path("none")), SWEEP, ["Hello."], until=time.monotonic() + 1)) == []


@pytest.mark.slow
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_tiny_services_are_measured_whole(tmp_path: Path, placement: str) -> None:
    model = make_checkpoint(tmp_path / "model", max_position_embeddings=512)
    drafter = Drafter(model=model, proposer="draft_model")
    services = Services(model=model, dtype="float32", kv_memory_mib=16, drafters=(drafter,), placement=placement)
    sweep = Sweep(proposers=("draft_model",), streams=(1,), temperatures=(0.0,), num_tokens=16, seconds=3.0)
    points = list(measure(services, sweep, ["Hello."]))
    assert [point.proposer for point in points] == ["none", "draft_model", "draft_model"]
    assert all(point.tokens_per_second > 0 and not point.failures for point in points)
    assert all(point.acceptance_length > 2 for point in points[1:])  # the target drafts for itself
