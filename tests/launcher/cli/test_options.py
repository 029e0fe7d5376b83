"""What SIGTERM does to a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from launcher.cli import options


@pytest.fixture(autouse=True)
def _handler_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_sigterm_that_follows_at_once_is_the_same_and_a_later_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(options, "time", SimpleNamespace(monotonic=lambda: now[0]))
    options.stop_on_sigterm()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    now[0] += 0.5
    os.kill(os.getpid(), signal.SIGTERM)
    now[0] += 2.0
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
