"""Prints time, bytes and fraction of the copy bandwidth of every kernel and shape: `python -m bench.bench_kernels`."""

from __future__ import annotations

import argparse

import torch

from bench.kernels import attention, elementwise, verification
from bench.timing import copy_bandwidth, microseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth / 1e12:.2f} TB/s")
    print(f"{'kernel':<20}{'shape':<28}{'us':>9}{'MB':>10}{'of copy':>9}{'target us':>11}")
    for module in (elementwise, attention, verification):
        with torch.inference_mode():
            for case in module.cases():
                if arguments.only not in case.kernel:
                    continue
                time = microseconds(case.runs)
                share = case.num_bytes / (time * 1e-6) / bandwidth
                target = f"{case.target_us:.0f}" if case.target_us else ""
                figures = f"{time:>9.1f}{case.num_bytes / 1e6:>10.2f}{share:>9.0%}{target:>11}"
                print(f"{case.kernel:<20}{case.shape:<28}{figures}", flush=True)


if __name__ == "__main__":
    main()
