"""An engine that shares its process computes with the math threads of its own configuration."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import torch

from slipstream.config import EngineConfig
from slipstream.engine.lane import OwnLane


def test_a_thread_counts_as_many_math_threads_as_its_engine_has_whatever_another_engine_set(tmp_path: Path) -> None:
    before, seen = torch.get_num_threads(), []

    def engine(num_threads: int) -> None:
        with OwnLane(EngineConfig(model=tmp_path, num_threads=num_threads))():
            seen.append(torch.get_num_threads())

    try:
        for num_threads in (2, 1):
            thread = Thread(target=engine, args=(num_threads,))
            thread.start()
            thread.join(10)
    finally:
        torch.set_num_threads(before)
    assert seen == [2, 1]
