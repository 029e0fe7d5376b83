"""A barrier of all programs of a launch, which must all be resident. Knows a counter, nothing of what it separates.

The counter only grows: a launch adds programs x barriers to it, and remembers at its end where the next one starts. A
program waits a bounded number of turns; then it says so in an error word and goes on, for a GPU that hangs is worse
than a wrong draft.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

PATIENCE = 1 << 17  # turns of about 0.6 us


class Sync(NamedTuple):
    """Of one persistent launch at a time."""

    counter: Any  # [1] int64
    start: Any  # [1] int64: the counter when no launch is running
    error: Any  # [1] int32, 0 = no program ever gave up
    patience: Any


@triton.jit
def arrive(sync: Sync) -> None:
    """What this program wrote can be read by whoever waits for it."""
    tl.debug_barrier()
    tl.atomic_add(sync.counter, 1, sem="release", scope="gpu")


@triton.jit
def _read(counter_ptr: tl.tensor) -> tl.tensor:
    """The counter, before anything that is read later."""
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.s64 $0, [$1];",
        "=l,l",
        [counter_ptr.to(tl.int64)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )


@triton.jit
def wait(sync: Sync, target: tl.tensor, patience: tl.tensor) -> tl.tensor:
    """Waits until all have arrived; the patience that is left: none once it was lost."""
    turns = 0
    while (_read(sync.counter) < target) & (turns < patience):
        turns += 1
    if turns >= patience:
        tl.store(sync.error, 1)
    return tl.where(turns < patience, patience, 0)
