"""Rotary embedding and KV write in one kernel agree with the references."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.rotary import rotary_write_kv
from slipstream.kernels.rotary import rotary_write_kv_reference
from tests.kernels.gpu.tolerance import assert_near

BLOCK_SIZE = 4
SHAPES = [(1, 1, 1, 64), (5, 9, 3, 64), (3, 4, 2, 96), (2, 2, 1, 256)]  # tokens, heads, KV heads, head_dim
BIG = [(5, 32, 8, 128), (160, 32, 8, 128), (2048, 8, 2, 96)]
Inputs = tuple[torch.Tensor, ...]


def make_inputs(shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> Inputs:
    """Queries, keys and values as views of one fused product; slots in no order, and caches full of junk."""
    num_tokens, heads, kv_heads, head_dim = shape
    torch.manual_seed(sum(shape))
    qkv = torch.randn(num_tokens, heads + 2 * kv_heads, head_dim, device=device).to(dtype)
    angles = torch.rand(num_tokens, 1, head_dim // 2, device=device) * 6
    cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((-angles, angles), -1).sin()
    num_blocks = num_tokens // BLOCK_SIZE + 2
    caches = torch.randn(2, num_blocks, BLOCK_SIZE, kv_heads, head_dim, device=device).to(dtype)
    slots = torch.randperm(num_blocks * BLOCK_SIZE, device=device)[:num_tokens]
    return qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :], cos.to(dtype), sin.to(dtype), *caches, slots


def check(shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> None:
    inputs = make_inputs(shape, dtype, device)
    expected_inputs = [x.double() for x in inputs[:6]]
    query, expected = rotary_write_kv(*inputs), rotary_write_kv_reference(*expected_inputs, inputs[6])
    assert_near(query, expected)
    for cache, expected_cache in zip(inputs[4:6], expected_inputs[4:6], strict=True):
        assert_near(cache, expected_cache)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_agrees_with_the_reference(
    shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    check(shape, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES + BIG)
def test_compiled_kernel_agrees_with_the_reference(
    shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    check(shape, dtype, device)


def test_a_padding_token_writes_nothing(device: torch.device) -> None:
    inputs = make_inputs((2, 2, 1, 64), torch.float32, device)
    before = [cache.clone() for cache in inputs[4:6]]
    rotary_write_kv(*inputs[:6], torch.full((2,), -1, device=device))
    assert all(torch.equal(cache, old) for cache, old in zip(inputs[4:6], before, strict=True))
