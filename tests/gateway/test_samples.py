"""Sequences of one request."""

from __future__ import annotations

from itertools import count

import pytest

from gateway.policy.tenants import Tenant
from gateway.samples import check_num_samples, samples_of
from slipstream.errors import InvalidRequest
from slipstream.request import SamplingParams, SequenceRequest


def test_samples_share_prompt_and_seed_and_differ_in_what_makes_their_noise() -> None:
    sampling = SamplingParams(prompt_logprobs=True, logprobs=True)
    first = SequenceRequest(sequence_id=5, token_ids=(1, 2), num_prompt_tokens=2, sampling=sampling, seed=9)
    samples = samples_of(first, 3, count(6))
    assert [one.sequence_id for one in samples] == [5, 6, 7]
    assert [one.sample_index for one in samples] == [0, 1, 2]
    assert {(one.token_ids, one.seed) for one in samples} == {((1, 2), 9)}
    assert [one.sampling.prompt_logprobs for one in samples] == [True, False, False]
    assert all(one.sampling.logprobs for one in samples)


@pytest.mark.parametrize("limits", [{"max_samples": 4}, {"max_concurrent": 4}, {"max_running": 4}])
def test_more_than_can_ever_run_are_refused_with_the_range(limits: dict[str, int]) -> None:
    tenant = Tenant(name="t", anonymous=True, **({"max_samples": 64} | limits))
    check_num_samples(4, tenant, 256)
    for wrong in (0, 5):
        with pytest.raises(InvalidRequest, match=rf"n is {wrong}; it must be in 1\.\.4"):
            check_num_samples(wrong, tenant, 256)
    with pytest.raises(InvalidRequest, match=r"n is 4; it must be in 1\.\.3"):
        check_num_samples(4, tenant, 3)
