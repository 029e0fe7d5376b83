"""From what a caller asks to what a verifier is asked, with every bound checked. Knows the model; no peer, no gRPC."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import replace

from gateway.completion import Completion
from gateway.peers.catalog import ServedModel
from gateway.policy.tenants import Tenant
from slipstream.errors import InvalidRequest, quoted
from slipstream.request import SamplingParams, SequenceRequest
from slipstream.vocabulary_check import check_ids, check_sampling_ids

MAX_REQUEST_ID_CHARS = 128


def admit(
    completion: Completion, prompt_ids: tuple[int, ...], *, tenant: Tenant, model: ServedModel, sequence_id: int
) -> SequenceRequest:
    """Raises InvalidRequest naming parameter, value and range."""
    info = model.info
    left = info.max_model_len - len(prompt_ids)
    if left < 1:
        raise InvalidRequest(
            f"prompt has {len(prompt_ids)} tokens; it must be <= {info.max_model_len - 1}, "
            f"for the context of {info.name!r} is {info.max_model_len} tokens and holds the output too"
        )
    if len(prompt_ids) > tenant.max_prompt_tokens:
        raise InvalidRequest(
            f"prompt has {len(prompt_ids)} tokens; it must be <= {tenant.max_prompt_tokens}, your tenant's limit"
        )
    sampling = _sampling(completion, tenant, left)
    check_ids("prompt", prompt_ids, info.vocab_size)
    check_sampling_ids(sampling, info.vocab_size)
    proposers = tenant.active_proposers
    return SequenceRequest(
        sequence_id=sequence_id,
        token_ids=prompt_ids,
        num_prompt_tokens=len(prompt_ids),
        sampling=sampling,
        mode=tenant.verification_mode,
        seed=secrets.randbits(64) if completion.seed is None else completion.seed,
        shares_seed=completion.seed is not None,
        num_draft_tokens=tenant.num_draft_tokens if proposers else 0,
        fan_out=tenant.fan_out,
        max_wait_us=round(tenant.max_wait_ms * 1000),
        proposers=proposers,
        adapter=tenant.adapter,
        tenant=tenant.name,
        vocabulary_hash=info.vocabulary_hash,
        request_id=completion.request_id,
    )


def identified(completion: Completion) -> Completion:
    """With a request id, the caller's or one of ours."""
    return replace(completion, request_id=usable_request_id(completion.request_id))


def usable_request_id(request_id: str) -> str:
    """What was given, or one of ours if it is empty. It is written to logs and headers, hence the characters."""
    if len(request_id) > MAX_REQUEST_ID_CHARS or not (request_id.isascii() and request_id.isprintable()):
        raise InvalidRequest(
            f"request_id is {quoted(request_id)}; it must be <= {MAX_REQUEST_ID_CHARS} printable ASCII characters"
        )
    return request_id or uuid.uuid4().hex


def _sampling(completion: Completion, tenant: Tenant, left: int) -> SamplingParams:
    max_tokens = min(left, tenant.max_tokens) if completion.max_tokens is None else completion.max_tokens
    if max_tokens > tenant.max_tokens:
        raise InvalidRequest(f"max_tokens is {max_tokens}; it must be in 1..{tenant.max_tokens}, your tenant's limit")
    return SamplingParams(
        temperature=completion.temperature,
        top_k=completion.top_k,
        top_p=completion.top_p,
        min_p=completion.min_p,
        max_tokens=max_tokens,
        stop_token_ids=completion.stop_token_ids,
        stop_strings=completion.stop,
        ignore_eos=completion.ignore_eos,
        repetition_penalty=completion.repetition_penalty,
        presence_penalty=completion.presence_penalty,
        frequency_penalty=completion.frequency_penalty,
        logit_bias=completion.logit_bias,
        allowed_token_ids=completion.allowed_token_ids,
        bad_words=completion.bad_words,
        min_tokens=completion.min_tokens,
        logprobs=completion.logprobs,
        num_top_logprobs=completion.num_top_logprobs,
        prompt_logprobs=completion.prompt_logprobs,
        grammar=completion.grammar,
    )
