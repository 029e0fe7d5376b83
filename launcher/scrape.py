"""Fetches a service's Prometheus text. Knows HTTP; nothing of what is in it."""

from __future__ import annotations

from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener


def metrics_text(address: str, seconds: float) -> str | None:
    """None if nothing answers there."""
    opener = build_opener(ProxyHandler({}))  # services are asked directly, as gRPC does
    try:
        with opener.open(f"http://{address}/metrics", timeout=seconds) as answer:
            text: str = answer.read().decode()
            return text
    except (URLError, OSError, ValueError):
        return None
