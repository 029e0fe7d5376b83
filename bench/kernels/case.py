"""What a kernel bench measures: one shape of one kernel. Knows no kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    kernel: str
    shape: str
    runs: list[Callable[[], object]]  # the same work over different inputs
    num_bytes: int  # the fewest that one run must move
    target_us: float = 0.0  # 0 = none was set
