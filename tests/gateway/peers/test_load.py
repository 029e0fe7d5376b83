"""How full a peer is taken to be."""

from __future__ import annotations

import pytest

from gateway.peers.load import LEAST_SHARE, SLOW_START_SECONDS, PeerLoad
from slipstream.exchange import ModelInfo, StepReport


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def info(num_sequences: int, used: int = 0) -> ModelInfo:
    return ModelInfo(
        name="m", vocabulary_hash="", vocab_size=9, max_model_len=9,
        num_sequences=num_sequences, kv_blocks_used=used, kv_blocks_total=100,
    )  # fmt: skip


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def load(clock: Clock) -> PeerLoad:
    """Of a peer that has been there for long."""
    load = PeerLoad(clock)
    clock.now += SLOW_START_SECONDS
    return load


def test_others_sequences_count_like_ours(load: PeerLoad) -> None:
    assert load.cost(0) == (False, 1)
    load.note_model(info(num_sequences=5), num_ours=2)
    assert load.cost(2) == load.cost(2) == (False, 6)
    load.note_step(StepReport(num_running=2), num_ours=4)  # it has not heard of our last two
    assert load.cost(4) == (False, 5)


def test_who_has_a_queue_or_little_memory_left_comes_last(load: PeerLoad) -> None:
    busy = load.cost(50)
    load.note_step(StepReport(num_running=1, num_waiting=1), num_ours=2)
    assert load.cost(2) > busy
    load.note_step(StepReport(num_running=1, kv_blocks_used=95, kv_blocks_total=100), num_ours=1)
    assert load.cost(1) > busy
    load.note_step(StepReport(num_running=1, kv_blocks_used=50, kv_blocks_total=100), num_ours=1)
    assert load.cost(1) < busy


def test_an_old_report_of_a_queue_does_not_outlive_our_sequences(load: PeerLoad) -> None:
    load.note_step(StepReport(num_running=1, num_waiting=1), num_ours=2)
    load.note_model(info(num_sequences=0), num_ours=0)
    assert load.cost(0) == (False, 1)


def test_a_peer_that_has_just_come_gets_a_share_that_grows(load: PeerLoad, clock: Clock) -> None:
    old = load.cost(4)
    load.note_arrival()
    assert load.cost(0)[1] == pytest.approx(1 / LEAST_SHARE)
    assert load.cost(0) > old
    clock.now += SLOW_START_SECONDS / 2
    assert load.cost(0)[1] == pytest.approx(2)
    assert load.cost(0) < old
    clock.now += SLOW_START_SECONDS
    assert load.cost(0) == (False, 1)
