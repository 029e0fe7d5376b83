"""How our clients connect: message sizes, keepalive, reconnection, TLS. Knows addresses, no service."""

from __future__ import annotations

import grpc

from slipstream.wire.tls import ClientTls

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


def _usable(target: str) -> str:
    if not target:
        raise ValueError("an address is empty; it must be host:port")
    return target


def open_channel(target: str, tls: ClientTls | None = None, *, server_name: str = "") -> grpc.aio.Channel:
    """A channel to `host:port`. Connects when first used and, after a loss, again within about a second.

    `server_name`: what the server's certificate must name, if that is not `host`.
    """
    if tls is None:
        return grpc.aio.insecure_channel(_usable(target), options=CLIENT_OPTIONS)
    return grpc.aio.secure_channel(_usable(target), tls.credentials(), options=(*CLIENT_OPTIONS, *_named(server_name)))


def open_blocking_channel(target: str, tls: ClientTls | None = None) -> grpc.Channel:
    """The same for programs without an event loop."""
    if tls is None:
        return grpc.insecure_channel(_usable(target), options=CLIENT_OPTIONS)
    return grpc.secure_channel(_usable(target), tls.credentials(), options=CLIENT_OPTIONS)


def _named(server_name: str) -> tuple[tuple[str, str], ...]:
    return (("grpc.ssl_target_name_override", server_name),) if server_name else ()
