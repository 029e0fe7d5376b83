"""Asking one service: its health, its kind, and what its KV cache holds."""

from __future__ import annotations

import grpc
import pytest

from launcher.peer import SERVING, capacity, connected
from slipstream.exchange import ModelInfo
from tests.launcher.scripted_gateway import serving


def test_a_service_is_known_by_the_health_that_it_tells() -> None:
    with serving() as (_, address), connected(address, 5.0) as peer:
        assert (peer.health(), peer.kind()) == (SERVING, "gateway")
        with pytest.raises(grpc.RpcError):
            peer.model("verifier")  # it is none


def test_nobody_there_raises_within_the_time_given() -> None:
    with connected("127.0.0.1:1", 1.0) as peer, pytest.raises(grpc.RpcError):
        peer.health()


def test_capacity_is_blocks_and_the_longest_sequences_they_hold() -> None:
    info = ModelInfo(name="m", vocabulary_hash="", vocab_size=1, max_model_len=64, kv_blocks_total=10, kv_block_size=16)
    assert capacity(info) == "10 KV blocks of 16 tokens, enough for 2.5 sequences of 64"
