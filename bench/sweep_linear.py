"""Sweeps the few-rows product against the library's: `python -m bench.sweep_linear --rows 5 32`."""

from __future__ import annotations

import argparse
from functools import partial

import torch

from bench.timing import copy_bandwidth, microseconds
from slipstream.kernels.gpu.linear import FASTEST, few_rows_linear

SHAPES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (49152, 4096),
}
CONFIGS = [FASTEST, (64, 128, 4), (32, 128, 8), (128, 64, 6)]  # weight rows and depth of a tile, tiles in flight


def sweep(num_rows: int, name: str, width: int, depth: int, bandwidth: float) -> str:
    sets = max(2, (256 << 20) // (2 * width * depth))
    weights = [torch.randn(width, depth, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    x = torch.randn(num_rows, depth, device="cuda", dtype=torch.bfloat16)
    floor = 2 * width * depth / bandwidth * 1e6
    time = microseconds([partial(torch.nn.functional.linear, x, w) for w in weights])
    figures = [f"{num_rows} rows, {name}: library {time:.1f} ({floor / time:.0%})"]
    expected = torch.nn.functional.linear(x.float(), weights[0].float())
    for config in CONFIGS:
        error = ((few_rows_linear(x, weights[0], config).float() - expected).norm() / expected.norm()).item()
        time = microseconds([partial(few_rows_linear, x, w, config) for w in weights])
        figures.append(f"{config} {time:.1f} ({floor / time:.0%}{'' if error < 1e-2 else f', WRONG by {error:.1e}'})")
    return ", ".join(figures)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[5, 32])
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s; us (share of copy)")
    for num_rows in arguments.rows:
        for name in arguments.only:
            print(sweep(num_rows, name, *SHAPES[name], bandwidth), flush=True)


if __name__ == "__main__":
    main()
