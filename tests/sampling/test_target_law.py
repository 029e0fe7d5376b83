"""Shaped logits are the law that a plain reading of the parameters gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.request import SamplingParams
from slipstream.sampling.target_law import shape_logits

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 7, 1000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
)


def plain_law(logits: npt.NDArray[np.float32], params: SamplingParams) -> npt.NDArray[np.float64]:
    """One row, one rule after the other, in doubles."""
    probs = normalised(np.exp((logits.astype(np.float64) - logits.max()) / params.temperature))
    order = np.argsort(-probs)
    if params.top_k:
        probs[order[params.top_k :]] = 0
        probs = normalised(probs)
    mass_before = np.cumsum(probs[order]) - probs[order]
    probs[order[mass_before >= params.top_p]] = 0
    probs[probs < params.min_p * probs.max() * (1 - 1e-9)] = 0
    return normalised(probs)


def normalised(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return weights / weights.sum()


def laws(logits: torch.Tensor, **params: Any) -> list[list[float]]:
    shaped = shape_logits(logits, [SamplingParams(**params)] * len(logits))
    return [[round(prob, 4) for prob in row] for row in shaped.softmax(-1).tolist()]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(PARAMS, min_size=1, max_size=6), st.integers(0, 1 << 20), st.sampled_from([2, 9, 300]))
def test_every_row_gets_the_law_that_its_own_parameters_name(
    params: list[SamplingParams], seed: int, vocab_size: int
) -> None:
    logits = torch.randn(len(params), vocab_size, generator=torch.Generator().manual_seed(seed)) * 3
    shaped = shape_logits(logits, params)
    for row, row_params in enumerate(params):
        if row_params.greedy:
            assert torch.equal(shaped[row], logits[row])
        else:
            expected = plain_law(logits[row].numpy(), row_params)
            assert shaped[row].softmax(-1).numpy() == pytest.approx(expected, abs=1e-5)


def test_logits_given_in_are_left_alone() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    shape_logits(
        logits,
        [SamplingParams(top_k=3, top_p=0.9, min_p=0.1), SamplingParams(temperature=0.0)] * 1 + [SamplingParams()],
    )
    assert torch.equal(logits, before)


def test_top_p_sees_the_law_that_top_k_left() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    # After top_k = 2 the first token holds 4/7 >= 0.5, before it 0.4.
    assert laws(logits, top_k=2, top_p=0.5) == [[1.0, 0.0, 0.0, 0.0]]
    assert laws(logits, top_p=0.5) == [[0.5714, 0.4286, 0.0, 0.0]]


def test_tokens_of_equal_logit_share_one_fate() -> None:
    logits = torch.tensor([[1.0, 2.0, 1.0, 1.0, 0.0]])
    kept = [[True, True, True, True, False]]
    assert (shape_logits(logits, [SamplingParams(top_k=2)]) > -torch.inf).tolist() == kept
    assert (shape_logits(logits, [SamplingParams(top_p=0.6)]) > -torch.inf).tolist() == kept


def test_top_p_of_a_uniform_vocabulary_keeps_all_of_it() -> None:
    shaped = shape_logits(torch.zeros(2, 49152), [SamplingParams(top_p=0.5), SamplingParams(top_p=0.999999)])
    assert torch.equal(shaped, torch.zeros(2, 49152))


@pytest.mark.parametrize("temperature", [1e-30, 1e-44, 5e-324])
def test_a_tiny_temperature_is_greedy_and_never_nan(temperature: float) -> None:
    assert laws(torch.tensor([[90.0, 100.0, -torch.inf, 99.0]]), temperature=temperature) == [[0.0, 1.0, 0.0, 0.0]]


def test_a_row_is_shaped_alike_alone_and_among_others() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(8, 4096, generator=generator) * 4
    params = [SamplingParams(temperature=0.5 + row / 4, top_k=row * 100, top_p=1 - row / 20) for row in range(8)]
    together = shape_logits(logits, params)
    for row in range(8):
        assert torch.equal(shape_logits(logits[row : row + 1], params[row : row + 1])[0], together[row])
