"""How our clients connect: message sizes, keepalive and reconnection. Knows addresses, no service."""

from __future__ import annotations

import grpc

MAX_MESSAGE_BYTES = 16 << 20  # an Open of a 1M-token prompt is 4 MiB, a step's drafts well below 1

CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Without these a peer that came back is found after minutes only.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # what a ping really waits; by default 60 s, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),  # services talk to each other directly
)


def open_channel(target: str) -> grpc.aio.Channel:
    """A channel to `host:port`. Connects when first used and, after a loss, again within about a second."""
    return grpc.aio.insecure_channel(target, options=CLIENT_OPTIONS)
