"""Acceptance of a drafter computed offline from where it agrees with the target's greedy text. Knows no model.

While drafts are accepted, the drafter's context *is* the target's text. So one pass over that text says at every
position whether the drafter would have been right there, and walking over those answers gives what a server would see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Acceptance:
    drafts: int  # passes with a draft
    accepted_at: tuple[int, ...]  # [K]: in how many of them draft token i was accepted

    @property
    def per_position(self) -> tuple[float, ...]:
        return tuple(count / max(self.drafts, 1) for count in self.accepted_at)

    @property
    def length(self) -> float:
        """Mean acceptance length: tokens of a pass, the recovered or bonus token counted."""
        return 1 + sum(self.per_position)

    def __str__(self) -> str:
        positions = " ".join(f"{share:.2f}" for share in self.per_position)
        return f"acceptance length {self.length:.3f} (per position {positions})"


def greedy_acceptance(matches: Sequence[npt.NDArray[np.bool_]], num_draft_tokens: int) -> Acceptance:
    """`matches[i][t]`: the drafter's likeliest token, given the text before answer token t, is that token."""
    return _acceptance(
        [[row[start : start + num_draft_tokens] for start in range(len(row))] for row in matches], num_draft_tokens
    )


def deep_acceptance(matches: Sequence[npt.NDArray[np.bool_]]) -> Acceptance:
    """The same for a drafter whose first draft token is not made as its second.

    `matches[i][t, s]` speaks of draft token s when drafting begins at answer token t.
    """
    return _acceptance(
        [[row[: len(rows) - start] for start, row in enumerate(rows)] for rows in matches], matches[0].shape[1]
    )


def _acceptance(answers: Sequence[Sequence[npt.NDArray[np.bool_]]], num_draft_tokens: int) -> Acceptance:
    """`answers[i][t]`: which tokens of a draft that begins at answer token t are right, as far as the answer goes.

    An answer's first token comes from the prompt's own pass, so drafting starts at the second.
    """
    drafts, accepted_at = 0, [0] * num_draft_tokens
    for windows in answers:
        position = 1
        while position < len(windows):
            window = windows[position]
            run = len(window) if window.all() else int(window.argmin())
            for i in range(run):
                accepted_at[i] += 1
            drafts += 1
            position += run + 1
    return Acceptance(drafts, tuple(accepted_at))
