"""The noise kernel gives the reference's noise, and builds for Hopper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slipstream.kernels.noise import BLOCK, gumbel_noise
from slipstream.sampling import philox
from slipstream.sampling.noise import gumbel_noise as gumbel_noise_reference
from slipstream.sampling.noise import key_tensor
from slipstream.sampling.philox import Stream
from tests.kernels.hopper import compile_for_hopper

VOCAB_SIZE = 49152
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KEYS = [0, 1, 0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFF]
POSITIONS = [0, 7, 131071, 0xFFFFFFFF]
SAMPLE_INDICES = [0, 3, 0xFFFFFFFF, 1]
ROWS = (
    key_tensor(KEYS, DEVICE),
    torch.tensor(POSITIONS, device=DEVICE),
    torch.tensor(SAMPLE_INDICES, device=DEVICE),
)


@pytest.mark.parametrize("vocab_size", [1, 5, 4 * BLOCK, 4 * BLOCK + 1])
@pytest.mark.parametrize("stream, draw", [(Stream.RESIDUAL, 0), (Stream.ACCEPT, 0), (Stream.DRAFT, 0xFFFFFF)])
def test_noise_equals_the_torch_and_numpy_references(vocab_size: int, stream: Stream, draw: int) -> None:
    noise = gumbel_noise(*ROWS, vocab_size, stream, draw).cpu()
    torch.testing.assert_close(noise, gumbel_noise_reference(*ROWS, vocab_size, stream, draw).cpu(), rtol=0, atol=2e-6)
    keys, positions, samples = (
        np.array(values, dtype=np.uint64)[:, None] for values in (KEYS, POSITIONS, SAMPLE_INDICES)
    )
    words = philox.random_words(keys, positions, samples, stream, token_ids=np.arange(vocab_size), draws=draw)
    np.testing.assert_allclose(noise.numpy(), philox.gumbel(words), rtol=0, atol=2e-6)


def test_integers_of_a_whole_vocabulary_equal_the_numpy_reference_bit_for_bit() -> None:
    # Neighbouring values of u differ by more than 2e-6 in g where u is near either end; there g tells the integer.
    noise = gumbel_noise(*ROWS, VOCAB_SIZE).double().cpu().numpy()
    bits = np.exp(-np.exp(-noise)) * 2.0**23 - 0.5
    keys, positions, samples = (
        np.array(values, dtype=np.uint64)[:, None] for values in (KEYS, POSITIONS, SAMPLE_INDICES)
    )
    expected = philox.random_words(keys, positions, samples, Stream.RESIDUAL, token_ids=np.arange(VOCAB_SIZE))
    np.testing.assert_allclose(noise, philox.gumbel(expected), rtol=0, atol=2e-6)
    expected >>= 9
    tellable = noise > 5
    assert tellable.sum() > 500
    assert np.array_equal(np.rint(bits[tellable]), expected[tellable])


def test_no_rows_give_no_noise() -> None:
    empty = torch.tensor([], dtype=torch.int64, device=DEVICE)
    assert gumbel_noise(empty, empty, empty, 17).shape == (0, 17)


def test_rows_of_unequal_number_are_refused() -> None:
    with pytest.raises(ValueError, match="4 keys, 4 positions, 3 sample indices"):
        gumbel_noise(ROWS[0], ROWS[1], ROWS[2][:3], 17)


def test_the_kernel_builds_for_hopper_with_accurate_logarithms() -> None:
    ptx = compile_for_hopper(
        "slipstream.kernels.noise:_gumbel_noise_kernel",
        signature={
            "noise_ptr": "*fp32",
            "keys_ptr": "*i64",
            "positions_ptr": "*i64",
            "sample_indices_ptr": "*i64",
            "vocab_size": "i32",
            "stream_word": "i64",
        },
        constants={"BLOCK": BLOCK},
    )
    assert ".target sm_90" in ptx
    # The approximate logarithm is off by up to 2^-22 near 1, where -log u is what decides the largest noise.
    assert "lg2.approx" not in ptx
