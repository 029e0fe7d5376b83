"""One line and one count for each sequence's end."""

from __future__ import annotations

import logging

import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import Commit, SequenceFailure
from slipstream.logs import fields_of
from slipstream.request import FinishReason, SamplingParams, SequenceRequest
from slipstream.sequence_log import SequenceLog, sequences_counter

LOGGER = logging.getLogger("test.sequences")


def request(number: int) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=number, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(),
        tenant="acme", request_id=f"r-{number}",
    )  # fmt: skip


def test_each_end_is_told_once_with_the_clients_request_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    ended = sequences_counter()
    log = SequenceLog(LOGGER, ended)
    for number in range(1, 5):
        log.opened(request(number))
    log.committed(Commit(1, 1, (5,)))
    log.committed(Commit(1, 2, (5,), finish_reason=FinishReason.LENGTH))
    log.failed(SequenceFailure(2, InvalidRequest("top_p is 7")))
    log.closed(3)
    log.closed(1)  # it finished while the message was on its way
    log.stream_ended()
    told = [fields_of(record) for record in caplog.records]
    ends = ["LENGTH", "INVALID_ARGUMENT", "CLOSED", "STREAM_ENDED"]
    assert [(line["request"], line["end"]) for line in told] == [(f"r-{i + 1}", end) for i, end in enumerate(ends)]
    assert told[1]["reason"] == "top_p is 7"
    assert [ended.value("acme", end) for end in ends] == [1, 1, 1, 1]
