"""Shapes of the norm, activation and rotary kernels: one verify pass, 32 of them, a prompt; 8B and SmolLM2 widths."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.kernels.case import Case
from slipstream.kernels.gpu.rms_norm import add_rms_norm
from slipstream.kernels.gpu.rotary import rotary_write_kv
from slipstream.kernels.gpu.silu_mul import silu_mul

TOKENS = (5, 160, 2048)
MODELS = (("8B", 4096, 14336, 32, 8, 128), ("SmolLM2", 576, 1536, 9, 3, 64))  # hidden, feed-forward, heads, KV, dim


def cases() -> Iterator[Case]:
    for name, hidden, inner, heads, kv_heads, dim in MODELS:
        for tokens in TOKENS:
            yield _norm(f"{tokens} x {hidden}", tokens, hidden)
            yield _silu(f"{tokens} x {inner}", tokens, inner)
            yield _rotary(f"{tokens} tokens {name}", tokens, heads, kv_heads, dim)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def _norm(shape: str, tokens: int, hidden: int) -> Case:
    x, residual, weight = _random(tokens, hidden), _random(tokens, hidden), _random(hidden)
    return Case("add_rms_norm", shape, [lambda: add_rms_norm(x, residual, weight, 1e-5)], 8 * tokens * hidden)


def _silu(shape: str, tokens: int, inner: int) -> Case:
    gate_up = _random(tokens, 2 * inner)
    return Case("silu_mul", shape, [lambda: silu_mul(gate_up)], 6 * tokens * inner)


def _rotary(shape: str, tokens: int, heads: int, kv_heads: int, dim: int) -> Case:
    qkv, cos, sin = _random(tokens, heads + 2 * kv_heads, dim), _random(tokens, 1, dim), _random(tokens, 1, dim)
    query_key, value = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
    caches = [_random(tokens // 16 + 1, 16, kv_heads, dim) for _ in range(2)]
    slots = torch.randperm(tokens, device="cuda")
    num_bytes = 4 * tokens * dim * (heads + 2 * kv_heads + 1)
    return Case(
        "rotary_write_kv", shape, [lambda: rotary_write_kv(query_key, value, cos, sin, *caches, slots)], num_bytes
    )
