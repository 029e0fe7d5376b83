"""Torch noise is numpy noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slipstream.sampling import philox
from slipstream.sampling.noise import gumbel_noise, gumbel_noise_at, key_tensor
from slipstream.sampling.philox import Stream

KEYS = [0, 1, 0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFF]
POSITIONS = [0, 7, 131071, 0xFFFFFFFF]
SAMPLE_INDICES = [0, 3, 0xFFFFFFFF, 1]


def reference_words(vocab_size: int, stream: Stream, draw: int) -> np.ndarray:
    keys, positions, samples = (
        np.array(values, dtype=np.uint64)[:, None] for values in (KEYS, POSITIONS, SAMPLE_INDICES)
    )
    return philox.random_words(keys, positions, samples, stream, token_ids=np.arange(vocab_size), draws=draw)


def torch_noise(vocab_size: int, stream: Stream, draw: int) -> torch.Tensor:
    return gumbel_noise(
        key_tensor(KEYS), torch.tensor(POSITIONS), torch.tensor(SAMPLE_INDICES), vocab_size, stream, draw
    )


@pytest.mark.parametrize("vocab_size", [1, 4, 5, 1023, 49152])
@pytest.mark.parametrize("stream, draw", [(Stream.RESIDUAL, 0), (Stream.DRAFT, 0xFFFFFF)])
def test_noise_equals_the_numpy_reference(vocab_size: int, stream: Stream, draw: int) -> None:
    expected = philox.gumbel(reference_words(vocab_size, stream, draw))
    noise = torch_noise(vocab_size, stream, draw)
    assert noise.dtype == torch.float32
    np.testing.assert_allclose(noise.numpy(), expected, rtol=0, atol=2e-6)


def test_integers_equal_the_numpy_reference_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.sampling.noise._gumbel_", lambda bits: bits)
    expected = reference_words(1001, Stream.RESIDUAL, 0) >> 9
    assert np.array_equal(torch_noise(1001, Stream.RESIDUAL, 0).numpy().astype(np.uint32), expected)


def test_noise_of_named_tokens_is_the_same_noise() -> None:
    token_ids = torch.randint(0, 500, (len(KEYS), 40), generator=torch.Generator().manual_seed(0))
    rows = key_tensor(KEYS), torch.tensor(POSITIONS), torch.tensor(SAMPLE_INDICES)
    named = gumbel_noise_at(*rows, token_ids)
    assert torch.equal(named, gumbel_noise(*rows, 500).gather(1, token_ids))


def test_a_row_is_the_same_alone_and_among_others() -> None:
    together = torch_noise(333, Stream.RESIDUAL, 0)
    alone = gumbel_noise(key_tensor(KEYS[2:3]), torch.tensor([POSITIONS[2]]), torch.tensor([SAMPLE_INDICES[2]]), 333)
    assert torch.equal(alone[0], together[2])


def test_no_rows_give_no_noise() -> None:
    empty = torch.tensor([], dtype=torch.int64)
    assert gumbel_noise(empty, empty, empty, 17).shape == (0, 17)
