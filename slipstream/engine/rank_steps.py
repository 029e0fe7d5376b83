"""What rank 0 has the other ranks do. Knows steps; not how they travel nor what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream.engine.buckets import Bucket
from slipstream.engine.scoring import ScoredChunk
from slipstream.kernels.batch import Chunk
from slipstream.sampling.sliced_verification import AnyCheck


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make what later steps would have to wait for."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Feed the chunks; rank 0 wants all logits."""

    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Score:
    prompts: Sequence[ScoredChunk]


@dataclass(frozen=True, slots=True)
class CopyBlocks:
    pairs: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Verify:
    """One step, launched operation by operation."""

    chunks: Sequence[Chunk]
    checks: Sequence[AnyCheck]


@dataclass(frozen=True, slots=True)
class Replay:
    """One step from graphs: its inputs are the words of the step buffer, which say all that the others need."""

    bucket: Bucket
    tapped: bool  # with features
    whole: bool  # rank 0 verifies alone, on all logits
    needs: str  # of the checks, a value of Needs; empty: there are none
    plain: bool  # the words have no room for laws
    words: npt.NDArray[np.int32]


Step = Prepare | Forward | Score | CopyBlocks | Verify | Replay
SendStep = Callable[[Step], None]


def send_nowhere(step: Step) -> None:
    """For ranks that lead nobody: followers, and the only one of a model that is not split."""
