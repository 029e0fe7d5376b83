"""One word for how a request ended, and one line in the log."""

from __future__ import annotations

import logging

import pytest

from gateway.completion import Timings, Usage
from gateway.request_log import log_ended, log_refused, outcome_of
from gateway.session import Ended
from slipstream.errors import Unavailable
from slipstream.logs import fields_of
from slipstream.request import FinishReason


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (Ended(finish_reason=FinishReason.STOP), "STOP"),
        (Ended(), "CANCELLED"),
        (Ended(error=Unavailable("x")), "UNAVAILABLE"),
    ],
)
def test_an_end_is_a_finish_reason_or_a_status_or_the_clients_leave(ended: Ended, outcome: str) -> None:
    assert outcome_of(ended) == outcome


def test_the_line_names_request_tenant_end_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_ended("r-1", "acme", "STOP", Usage(prompt_tokens=3, num_passes=2), Timings(total_us=1500))
    (record,) = caplog.records
    told = fields_of(record)
    assert [told[name] for name in ("request", "tenant", "end", "prompt_tokens", "passes", "total_ms")] == [
        "r-1", "acme", "STOP", 3, 2, 1.5,
    ]  # fmt: skip


def test_a_refusal_tells_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_refused("r-1", "acme", "INVALID_ARGUMENT", "top_p is 7")
    (record,) = caplog.records
    assert fields_of(record) == {
        "request": "r-1", "tenant": "acme", "end": "INVALID_ARGUMENT", "reason": "top_p is 7",
    }  # fmt: skip
