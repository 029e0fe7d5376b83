"""What one step's matrix products cost on this CPU: plain and packed weights, by number of tokens.

Run: python -m bench.layers.linear [threads]
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from slipstream.layers.linear import pack_weight, packed_linear

LAYERS = 30
SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))  # [out, in] of a SmolLM2-135M layer
HEAD = (49152, 576)
TOKENS = (1, 2, 4, 8, 16, 32, 128)
REPEATS = 7


def least_ms(run: Callable[[], object]) -> float:
    """The shortest of several runs: what it takes when nothing interferes."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def measure(dtype: torch.dtype) -> None:
    weights = [torch.randn(shape).mul_(0.02).to(dtype) for _ in range(LAYERS) for shape in SHAPES]
    weights.append(torch.randn(HEAD).mul_(0.02).to(dtype))
    packed = [pack_weight(weight) for weight in weights]
    megabytes = sum(weight.numel() * weight.itemsize for weight in weights) / 1e6
    print(f"\n{dtype}, {megabytes:.0f} MB of weights\n  tokens  plain ms  packed ms")
    for num_tokens in TOKENS:
        inputs = [torch.randn(num_tokens, weight.shape[1]).to(dtype) for weight in weights]

        def run(linear: Callable[..., torch.Tensor], prepared: list[torch.Tensor], x: list[torch.Tensor]) -> None:
            for weight, row in zip(prepared, x, strict=True):
                linear(row, weight, None)

        plain = least_ms(lambda x=inputs: run(functional.linear, weights, x))  # type: ignore[misc]
        fast = least_ms(lambda x=inputs: run(packed_linear, packed, x))  # type: ignore[misc]
        print(f"  {num_tokens:6} {plain:9.1f} {fast:10.1f}")


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    torch.manual_seed(0)
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"all linears of SmolLM2-135M: {LAYERS} layers of {SHAPES} and the head {HEAD}; the floor is memory speed")
    for dtype in (torch.bfloat16, torch.float32):
        measure(dtype)


if __name__ == "__main__":
    main()
