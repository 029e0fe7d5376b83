"""The log: one line per request, as name=value. Never a key, never a text."""

from __future__ import annotations

import logging
import time

from gateway.ledger import Ledger
from gateway.session import Ended
from slipstream.request import FinishReason
from slipstream.wire.status import to_status

_LOG = logging.getLogger("gateway.requests")


def log_ended(request_id: str, tenant: str, ledger: Ledger, ended: Ended) -> None:
    usage, timings = ledger.usage, ledger.timings(time.monotonic())
    _LOG.info(
        "request=%s tenant=%s end=%s prompt_tokens=%d output_tokens=%d drafted=%d accepted=%d passes=%d "
        "first_token_ms=%.1f total_ms=%.1f",
        request_id,
        tenant,
        _end(ended),
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.num_draft_tokens,
        usage.accepted_tokens,
        usage.num_passes,
        timings.first_token_us / 1e3,
        timings.total_us / 1e3,
    )


def log_refused(request_id: str, tenant: str, error: Exception) -> None:
    code, text = to_status(error)
    _LOG.info("request=%r tenant=%s end=%s reason=%r", request_id, tenant, code.name, text)


def _end(ended: Ended) -> str:
    if ended.error is not None:
        return to_status(ended.error)[0].name
    return "CANCELLED" if ended.finish_reason is FinishReason.NONE else ended.finish_reason.name
