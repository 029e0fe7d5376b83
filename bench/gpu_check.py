"""Runs steps of gpu_steps.py in one call to a GPU machine and says how each ended: `python -m bench.gpu_check STEP...`.

Knows no step. Logs are packed into one file after every step, so that a call cut short keeps those it has.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tarfile
import time
from pathlib import Path

from bench.gpu_steps import LOGS, STEPS, Step

FEWEST_SECONDS = 5  # with less left a step is not begun


def run(name: str, step: Step, seconds: float, folder: Path) -> str:
    """How the step ended. Its output goes to a log of its name."""
    start = time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # tests run side by side
    with (folder / f"{name}.log").open("w") as log:
        command = [word.replace(LOGS, str(folder)) for word in step.command]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, process_group=0)
        try:
            code = process.wait(seconds)
            ended = "ok" if code == 0 else f"exit {code}"
        except subprocess.TimeoutExpired:
            ended = f"over {seconds:.0f} s"
        finally:
            end_group(process)
    return f"{name}: {ended}, {time.monotonic() - start:.0f} s"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what a step started and left, too."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return
    process.wait()


def show(name: str, folder: Path, num_characters: int) -> None:
    print(f"== {name}", (folder / f"{name}.log").read_text(errors="replace")[-num_characters:], sep="\n", flush=True)


def pack(folder: Path, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname="logs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--within", type=float, default=600, help="seconds for all steps; later ones are left out")
    parser.add_argument("--logs", type=Path, default=Path("build/gpu_check"), help="a folder for the logs")
    parser.add_argument("--archive", type=Path, default=Path("build/gpu_check.tar.gz"), help="where to pack them")
    parser.add_argument("--shown", type=int, default=2500, help="characters of each log's end to print")
    arguments = parser.parse_args()
    for folder in (arguments.logs, Path("build")):
        folder.mkdir(parents=True, exist_ok=True)
    end, endings = time.monotonic() + arguments.within, []
    for name in arguments.steps:
        left = end - time.monotonic()
        if left < FEWEST_SECONDS:
            endings.append(f"{name}: not begun")
            continue
        endings.append(run(name, STEPS[name], min(STEPS[name].seconds, left), arguments.logs))
        show(name, arguments.logs, arguments.shown)
        pack(arguments.logs, arguments.archive)
    print("== " + "; ".join(endings))


if __name__ == "__main__":
    main()
