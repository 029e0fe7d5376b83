"""Masks arrive on the device as they were filled, whatever an earlier step left."""

from __future__ import annotations

import numpy as np
import torch

from slipstream.engine.mask_buffers import MaskBuffers
from slipstream.sampling.token_masks import TokenMasks


def test_rows_and_bits_arrive_whole_after_a_larger_step() -> None:
    buffers = MaskBuffers(4, 70, torch.device("cpu"))
    rng = np.random.default_rng(1)
    for num_masks in (4, 1, 3):
        rows = rng.permutation(9)[:num_masks].astype(np.int32)
        bits = rng.integers(-(2**31), 2**31, (num_masks, 3)).astype(np.int32)
        on_device = buffers.upload(TokenMasks(rows, bits))
        assert [tensor.tolist() for tensor in on_device] == [rows.tolist(), bits.tolist()]
        assert on_device[1].is_contiguous()
