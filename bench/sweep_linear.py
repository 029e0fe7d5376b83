"""Sweeps the few-rows product against the library's: `python -m bench.sweep_linear`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch

from bench.timing import copy_bandwidth, microseconds
from slipstream.kernels.gpu.linear import few_rows_linear

OUTPUT = Path("build/linear_configs.json")
SHAPES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (49152, 4096),
}
CONFIGS = [
    (16, 256, 6, 4),
    (16, 512, 4, 4),
    (32, 128, 8, 4),
    (32, 256, 5, 4),
    (64, 64, 8, 4),
    (64, 128, 6, 4),
    (64, 256, 4, 8),
]


@torch.inference_mode()
def main() -> None:
    chosen: list[object] = []
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s; us (share of copy); x rows 5")
    for name, (width, depth) in SHAPES.items():
        sets = max(2, (256 << 20) // (2 * width * depth))
        weights = [torch.randn(width, depth, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        x = torch.randn(5, depth, device="cuda", dtype=torch.bfloat16)
        floor = 2 * width * depth / bandwidth * 1e6
        time = microseconds([partial(torch.nn.functional.linear, x, w) for w in weights])
        line = [f"{name:<8} library {time:6.1f} ({floor / time:.0%})"]
        best, best_time = None, time
        expected = torch.nn.functional.linear(x.float(), weights[0].float())
        for config in CONFIGS:
            error = ((few_rows_linear(x, weights[0], *config).float() - expected).norm() / expected.norm()).item()
            time = microseconds([partial(few_rows_linear, x, w, *config) for w in weights])
            if time < best_time and error < 5e-3:
                best, best_time = config, time
            line.append(f"{config}: {time:6.1f} ({floor / time:.0%}) err {error:.1e}")
        print("\n    ".join(line), flush=True)
        if best:
            chosen.append(((width, depth), best))
    OUTPUT.write_text(json.dumps(chosen))


if __name__ == "__main__":
    main()
