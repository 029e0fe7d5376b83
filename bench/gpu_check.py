"""Everything that needs a GPU in one call: kernel tests, memory checker, benches. `python bench/gpu_check.py [step]`.

Runs under a bare Python with torch and pytest: takes no setting from pyproject.toml. Logs go to the folder in --logs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

KERNEL_TESTS = ["tests/kernels/gpu", "tests/kernels/test_noise.py"]
SANITIZED = "test_rms_norm or test_rotary or (test_attention and splits) or (test_verification and not compiled)"
SHOWN = 5000  # characters of each log
PYTEST = [
    *(sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=.", "--import-mode=importlib", "-q", "-rf"),
    *("--tb=short", "-p", "no:cacheprovider", "-W", "ignore"),
]
SANITIZER = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
STEPS = {  # seconds at most, command
    "tests": (75, [*PYTEST, "-n", "14", "--maxfail=40", *KERNEL_TESTS]),
    "step": (55, [sys.executable, "-m", "bench.bench_step"]),
    "limits": (20, [sys.executable, "-m", "bench.bench_kernels", "--only", "verify"]),
    "decode": (60, [sys.executable, "-m", "bench.bench_decode", "--trace"]),
    "verify": (45, [sys.executable, "-m", "bench.bench_verify", "--only", "x 5 over"]),
    "verify_apart": (40, [sys.executable, "-m", "bench.bench_verify", "--no-overlap"]),
    "sweep": (60, [sys.executable, "-m", "bench.sweep_linear"]),
    "verify_library": (40, [sys.executable, "-m", "bench.bench_verify", "--library-products"]),
    "kernels": (60, [sys.executable, "-m", "bench.bench_kernels"]),
    "memcheck": (40, [*SANITIZER, *PYTEST, "-m", "not gpu", "-k", SANITIZED, KERNEL_TESTS[0]]),
}


def run(name: str, limit: int, command: list[str], logs: Path) -> str:
    """Runs one step, shows the end of what it printed, and returns how it ended."""
    start, path = time.monotonic(), logs / f"{name}.log"
    with path.open("w") as log:
        try:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}  # tests run side by side
            done = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=limit, check=False, env=environment
            )
            ended = "ok" if done.returncode == 0 else f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"over {limit} s"
    print(f"== {name}", path.read_text()[-SHOWN:], sep="\n", flush=True)
    return f"{name}: {ended}, {time.monotonic() - start:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", default=list(STEPS), help=f"of {', '.join(STEPS)}; all by default")
    parser.add_argument("--logs", type=Path, default=Path("build/gpu_check"))
    arguments = parser.parse_args()
    for folder in (arguments.logs, Path("build")):
        folder.mkdir(parents=True, exist_ok=True)
    ends = [run(name, *STEPS[name], arguments.logs) for name in arguments.steps]
    print("== " + "; ".join(ends))


if __name__ == "__main__":
    main()
