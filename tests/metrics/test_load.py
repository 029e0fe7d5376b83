"""How full a service is."""

from __future__ import annotations

from slipstream.exchange import ModelInfo
from slipstream.metrics.endpoint import make_registry
from slipstream.metrics.load import load_gauges


def test_blocks_and_sequences_are_those_of_the_moment() -> None:
    infos = [ModelInfo(name="m", vocabulary_hash="", vocab_size=1, max_model_len=1, kv_blocks_total=9)]
    registry = make_registry("test", load_gauges(lambda: infos[-1]))
    infos.append(
        ModelInfo(
            name="m", vocabulary_hash="", vocab_size=1, max_model_len=1,
            kv_blocks_total=9, kv_blocks_used=4, num_sequences=2,
        )
    )  # fmt: skip
    names = ("slipstream_kv_blocks_used", "slipstream_kv_blocks", "slipstream_open_sequences")
    assert [registry.get_sample_value(name) for name in names] == [4, 9, 2]
