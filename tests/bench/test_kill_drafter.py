"""Under load a drafter is killed and started again: what is reported of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clients import Felt
from bench.kill_drafter import Look, Times, measure, reached, recovery_of
from bench.live_services import Drafter, Services
from tests.tiny_models import make_checkpoint

TIMES = Times(plain=1.0, drafted=2.0, without=2.0, again=3.0)


def looks_at(rates: list[tuple[float, float]]) -> list[Look]:
    """From time 0 on, so many seconds at each rate, looked at ten times a second."""
    looks, tokens = [(0.0, 0)], 0.0
    for seconds, rate in rates:
        for _ in range(round(seconds * 10)):
            tokens += rate / 10
            looks.append((round(looks[-1][0] + 0.1, 6), round(tokens)))
    return looks


def test_times_count_to_the_first_window_that_is_fast_enough() -> None:
    looks = looks_at([(2, 2000), (0.4, 0), (1.6, 1000), (3, 2000)])
    recovery = recovery_of(looks, (2.0, 4.0, 4.5), TIMES, 32, 1000.0, Felt())
    assert recovery.seconds_to_plain == pytest.approx(0.4)
    assert recovery.seconds_to_start == pytest.approx(0.5)
    assert recovery.seconds_to_drafted == pytest.approx(0.0)
    assert (recovery.drafted, recovery.again, recovery.lowest) == (
        pytest.approx(2000),
        pytest.approx(2000),
        pytest.approx(200),
    )


def test_what_never_comes_back_has_no_time() -> None:
    assert reached(looks_at([(2, 2000), (4, 100)]), 2.0, 1000.0) is None


@pytest.mark.slow
def test_no_stream_fails_when_a_tiny_drafter_is_killed(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", max_position_embeddings=1024)
    drafter = Drafter(model=model, proposer="draft_model")
    services = Services(model=model, dtype="float32", kv_memory_mib=64, drafters=(drafter,))
    recovery = measure(services, 4, TIMES)
    assert not recovery.failures
    assert min(recovery.plain, recovery.drafted, recovery.lowest, recovery.again) > 0
