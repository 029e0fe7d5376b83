"""The sequences of one request, one for each of its samples. Knows requests and limits; no peer, no client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gateway.policy.tenants import Tenant
from slipstream.errors import InvalidRequest
from slipstream.request import SequenceRequest


def check_num_samples(num_samples: int, tenant: Tenant, max_running: int) -> None:
    """All samples of a request run at one time, so more than may run could never begin."""
    most = min(tenant.max_samples, tenant.max_concurrent, tenant.max_running, max_running)
    if not 1 <= num_samples <= most:
        raise InvalidRequest(f"n is {num_samples}; it must be in 1..{most}, your tenant's limit")


def samples_of(first: SequenceRequest, num_samples: int, sequence_ids: Iterator[int]) -> list[SequenceRequest]:
    """They share prompt and seed; the sample index makes their noise, and with it drafts and output, each their own.

    Only the first has the prompt scored, so that the others can take its KV from the first.
    """
    sampling = replace(first.sampling, prompt_logprobs=False)
    return [
        first,
        *(
            replace(first, sequence_id=next(sequence_ids), sample_index=index, sampling=sampling)
            for index in range(1, num_samples)
        ),
    ]
