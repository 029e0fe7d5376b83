"""Services that count what they keep: `python -m tests.chaos.counted_services SERVICE FOLDER OPTIONS...`.

Each SIGUSR1 makes one write two numbers to the file FOLDER/SERVICE: asyncio tasks that are not done, and objects.
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
        objects = gc.get_objects()
        num_tasks = sum(isinstance(one, asyncio.Task) and not one.done() for one in objects)
        part = file.with_suffix(".part")
        part.write_text(f"{num_tasks} {len(objects)}")
        part.replace(file)

    signal.signal(signal.SIGUSR1, write)


if __name__ == "__main__":
    service = sys.argv.pop(1)
    write_on_signal(Path(sys.argv.pop(1)) / service)
    import_module(f"{service}.__main__").app()
