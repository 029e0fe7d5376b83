"""The sweep: which points are measured, and what is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bench_serving import Sweep, line, measure, plain_beside, plot
from bench.clients import Felt
from bench.live_services import Drafter, Services
from bench.scraped import Scraped
from bench.serving_point import Point, Policy, make_point
from tests.tiny_models import make_checkpoint

SWEEP = Sweep(proposers=("ngram", "draft_model"), streams=(1, 8))
NOTHING = {"verifier": Scraped({}), "gateway": Scraped({})}


def made(policy: Policy, streams: int, num_tokens: int) -> Point:
    felt = Felt(seconds=1.0, num_tokens=num_tokens)
    return make_point(policy, felt, NOTHING, temperature=0.0, streams=streams, overlaps=True)


def test_plain_decoding_comes_first_at_every_load_and_once() -> None:
    loads = [(temperature, streams) for temperature in SWEEP.temperatures for streams in SWEEP.streams]
    for load in loads:
        names = [policy.name for policy, *rest in SWEEP.points() if tuple(rest) == load]
        assert names[0] == "none"
        assert len(set(names)) == len(names)


def test_modes_differ_only_where_there_is_chance_and_ngrams_enumerate_nothing() -> None:
    greedy = [policy.name for policy, temperature, streams in SWEEP.points() if (temperature, streams) == (0.0, 1)]
    warm = [policy.name for policy, temperature, streams in SWEEP.points() if (temperature, streams) == (1.0, 1)]
    assert greedy == ["none", "ngram-ratio", "draft_model-ratio", "draft_model-fan8-ratio"]
    assert len(warm) == 1 + 2 * 3


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


@pytest.mark.slow
def test_tiny_services_are_measured_whole(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", max_position_embeddings=512)
    drafter = Drafter(model=model, proposer="draft_model")
    services = Services(model=model, dtype="float32", kv_memory_mib=16, drafters=(drafter,))
    sweep = Sweep(proposers=("draft_model",), streams=(1,), temperatures=(0.0,), num_tokens=16, seconds=3.0)
    points = list(measure(services, sweep, ["Hello."]))
    assert [point.proposer for point in points] == ["none", "draft_model", "draft_model"]
    assert all(point.tokens_per_second > 0 and not point.failures for point in points)
    assert all(point.acceptance_length > 2 for point in points[1:])  # the target drafts for itself
