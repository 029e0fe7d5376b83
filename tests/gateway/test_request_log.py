"""One line per request."""

from __future__ import annotations

import logging

import pytest

from gateway.ledger import Ledger
from gateway.request_log import log_ended, log_refused
from gateway.session import Ended
from slipstream.errors import InvalidRequest, Unavailable
from slipstream.request import FinishReason


@pytest.mark.parametrize(
    ("ended", "end"),
    [
        (Ended(finish_reason=FinishReason.STOP), "STOP"),
        (Ended(), "CANCELLED"),
        (Ended(error=Unavailable("x")), "UNAVAILABLE"),
    ],
)
async def test_the_line_names_request_tenant_and_end(caplog: pytest.LogCaptureFixture, ended: Ended, end: str) -> None:
    caplog.set_level(logging.INFO)
    log_ended("r-1", "acme", Ledger(received=0, prompt_tokens=3, num_draft_tokens=2, seed=1), ended)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"request=r-1 tenant=acme end={end} prompt_tokens=3")


def test_a_refusal_is_one_line_whatever_the_caller_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_refused("a\nb", "acme", InvalidRequest("x is\ny"))
    (record,) = caplog.records
    assert record.getMessage() == r"request='a\nb' tenant=acme end=INVALID_ARGUMENT reason='x is\ny'"
