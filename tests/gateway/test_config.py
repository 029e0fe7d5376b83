"""The gateway's configuration refuses what cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config import GatewayConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verifiers": ()}, "verifiers is empty"),
        ({"verifiers": ("host",)}, "verifiers holds 'host'"),
        ({"verifiers": ("host:0",)}, "verifiers holds 'host:0'"),
        ({"verifiers": (":1",)}, "verifiers holds ':1'"),
        ({"drafters": ("host:70000",)}, "drafters holds 'host:70000'"),
        ({"recovery_seconds": -1}, "recovery_seconds is -1"),
        ({"max_running": 0}, "max_running is 0; it must be >= 1"),
        ({"max_queued": -1}, "max_queued is -1; it must be >= 0"),
        ({"max_queue_seconds": float("nan")}, "max_queue_seconds is nan"),
        ({"metrics_listen": "here"}, "metrics-listen is 'here'"),
        ({"max_unsent_tokens": 0}, "max_unsent_tokens is 0"),
        ({"watch_key_sha256": "secret"}, "watch_key_sha256 has 6 characters"),
        ({"watch_key_sha256": "0" * 64}, "watch_key_sha256 is given, and http_listen is empty"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GatewayConfig(**({"verifiers": ("127.0.0.1:1",)} | fields))
