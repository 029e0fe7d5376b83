"""Each complaint once."""

from __future__ import annotations

import pytest

from gateway.peers.complaints import Complaints


def test_a_thing_is_said_once_and_another_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for text in ("away", "away", "full", "away"):
        complaints.once(text)
    assert [record.message for record in caplog.records] == ["away", "full"]
