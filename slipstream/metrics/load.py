"""How full a service with a model is. Knows what it reports of itself; not how it keeps it."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.exchange import ModelInfo
from slipstream.metrics.instruments import Gauge


def load_gauges(info: Callable[[], ModelInfo]) -> list[Gauge]:
    """`info` reads counts only, so that any thread may ask."""
    return [
        Gauge("slipstream_open_sequences", "Sequences open, over all streams.", lambda: info().num_sequences),
        Gauge("slipstream_kv_blocks_used", "KV blocks that sequences hold.", lambda: info().kv_blocks_used),
        Gauge("slipstream_kv_blocks", "KV blocks there are.", lambda: info().kv_blocks_total),
    ]
