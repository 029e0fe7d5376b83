"""Limits are found exactly also where a row's sample misleads, and where more tokens are candidates than fit."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.candidates import SET_ASIDE, Candidates, set_aside
from slipstream.kernels.gpu.check_table import pack_checks
from slipstream.kernels.gpu.row_limits import row_limits
from slipstream.kernels.gpu.row_statistics import row_statistics, tile_size
from slipstream.kernels.gpu.sampled_bracket import RUN, SAMPLE
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling import target_law
from slipstream.sampling.check import SequenceCheck

VOCAB = 20_000
PARAMS = [
    SamplingParams(top_k=50),
    SamplingParams(top_p=0.8),
    SamplingParams(top_k=9000, top_p=0.9),
    SamplingParams(temperature=0.2, top_k=50, top_p=0.9),
]


MISLEADING = ("all alike", "sampled are likely", "sampled are unlikely")


def sampled() -> torch.Tensor:
    """[VOCAB] bool: the tokens that a sample looks at."""
    number = torch.arange(SAMPLE)
    index = number // RUN.value * (VOCAB * RUN.value // SAMPLE) + number % RUN.value
    return torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, index, True)


def misleading(kind: str) -> torch.Tensor:
    """[1, VOCAB] fp32."""
    noise = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3))
    if kind == "fair":
        return 2.5 * noise
    if kind == "all alike":
        return 1e-3 * noise
    return noise + 12.0 * (sampled() == (kind == "sampled are likely"))


def find(logits: torch.Tensor, params: SamplingParams) -> tuple[Candidates, torch.Tensor]:
    """What was set aside, and which tokens are kept."""
    check = SequenceCheck(draft=(), base=3, sampling=params, mode=VerificationMode.RATIO)
    table = pack_checks([check], VOCAB, logits.device)
    parts = row_statistics(logits, table)
    aside = set_aside(logits, table, parts)
    reach = row_limits(logits, table, parts, tile_size(*logits.shape))
    return aside, (logits.amax() - logits) / params.temperature <= reach[:, None]


@pytest.mark.parametrize("kind", ["fair", *(pytest.param(kind, marks=pytest.mark.slow) for kind in MISLEADING)])
def test_what_is_kept_is_what_the_reference_keeps(kind: str, device: torch.device) -> None:
    logits = misleading(kind)
    for params in PARAMS:
        _, kept = find(logits.to(device), params)
        expected = target_law.shape_logits(logits.clone(), [params]).isfinite()
        assert (kept.cpu() != expected).sum() <= 1, "a token at the edge may fall to either side by rounding"


@pytest.mark.slow
def test_a_fair_sample_suffices_and_a_misleading_one_does_not(device: torch.device) -> None:
    params = PARAMS[1]
    for kind, suffices in (("fair", True), ("sampled are unlikely", False), ("all alike", False)):
        logits = misleading(kind)
        aside, _ = find(logits.to(device), params)
        _, candidates, nearer_weight, candidates_weight = aside.sums[0].sum(0).tolist()
        wanted = params.top_p * (logits - logits.amax()).exp().sum().item()
        proven = candidates <= SET_ASIDE.value and nearer_weight < wanted <= nearer_weight + candidates_weight
        assert proven == suffices
