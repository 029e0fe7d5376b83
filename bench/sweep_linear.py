"""Sweeps the few-rows product against the library's: `python -m bench.sweep_linear`."""

from __future__ import annotations

from functools import partial

import torch

from bench.timing import copy_bandwidth, microseconds
from slipstream.kernels.gpu.linear import few_rows_linear

SHAPES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (49152, 4096),
}
CONFIGS = [(16, 256, 6), (32, 128, 8), (32, 256, 5), (64, 64, 8), (64, 128, 6), (128, 64, 6)]


@torch.inference_mode()
def main() -> None:
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s; us (share of copy); x rows 5")
    for name, (width, depth) in SHAPES.items():
        sets = max(2, (256 << 20) // (2 * width * depth))
        weights = [torch.randn(width, depth, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        x = torch.randn(5, depth, device="cuda", dtype=torch.bfloat16)
        floor = 2 * width * depth / bandwidth * 1e6
        time = microseconds([partial(torch.nn.functional.linear, x, w) for w in weights])
        line = [f"{name:<16} library {time:6.1f} ({floor / time:.0%})"]
        expected = torch.nn.functional.linear(x.float(), weights[0].float())
        for config in CONFIGS:
            error = ((few_rows_linear(x, weights[0], config).float() - expected).norm() / expected.norm()).item()
            time = microseconds([partial(few_rows_linear, x, w, config) for w in weights])
            line.append(f"{config}: {time:6.1f} ({floor / time:.0%}) err {error:.1e}")
        print("\n    ".join(line), flush=True)


if __name__ == "__main__":
    main()
