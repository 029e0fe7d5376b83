"""Services that count their asyncio tasks: `python -m tests.chaos.counted_services SERVICE FOLDER OPTIONS...`.

Each SIGUSR1 makes one write the number of tasks that are not done to the file FOLDER/SERVICE.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from importlib import import_module
from pathlib import Path


def write_on_signal(file: Path) -> None:
    def write(*_: object) -> None:
        gc.collect()
        num_tasks = sum(isinstance(one, asyncio.Task) and not one.done() for one in gc.get_objects())
        part = file.with_suffix(".part")
        part.write_text(str(num_tasks))
        part.replace(file)

    signal.signal(signal.SIGUSR1, write)


if __name__ == "__main__":
    service = sys.argv.pop(1)
    write_on_signal(Path(sys.argv.pop(1)) / service)
    import_module(f"{service}.__main__").app()
