"""How requests ended, in one word, and in one line of the log each. Never a key, never a text."""

from __future__ import annotations

import logging
from typing import Final

from gateway.completion import Timings, Usage
from gateway.session import Ended
from slipstream import logs
from slipstream.request import FinishReason
from slipstream.wire.status import to_status

_LOG = logging.getLogger("gateway.requests")

CANCELLED: Final = "CANCELLED"  # the client went


def outcome_of(ended: Ended) -> str:
    if ended.error is not None:
        return to_status(ended.error)[0].name
    return CANCELLED if ended.finish_reason is FinishReason.NONE else ended.finish_reason.name


def log_ended(request_id: str, tenant: str, outcome: str, usage: Usage, timings: Timings, *, sample: int = 0) -> None:
    told = logs.fields(
        request=request_id,
        tenant=tenant,
        end=outcome,
        sample=sample,
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        drafted=usage.num_draft_tokens,
        accepted=usage.accepted_tokens,
        passes=usage.num_passes,
        first_token_ms=timings.first_token_us / 1e3,
        total_ms=timings.total_us / 1e3,
    )
    _LOG.info("ended", extra=told)


def log_refused(request_id: str, tenant: str, outcome: str, reason: str) -> None:
    _LOG.info("refused", extra=logs.fields(request=request_id, tenant=tenant, end=outcome, reason=reason))
