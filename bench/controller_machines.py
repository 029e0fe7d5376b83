"""Machines and kinds of text that the controller is simulated on. Knows times and rates as measured; runs nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Times in seconds."""

    name: str
    verify: tuple[tuple[float, float], ...]  # tokens of a step, its time
    draft_token: float  # one draft step
    draft_rows: int  # rows that cost as much as one
    round_trip: float
    overlaps: bool  # a drafter drafts ahead of need, while the verifier computes
    contention: float = 0.0  # by how much a second of drafting makes the pass beside it longer; 0: cores of its own
    draft_prompt: float = 0.0  # a prompt's token, where a drafter opens a sequence
    host: float = 0.0  # what gateway and clients take for each sequence, between two steps
    jitter: float = 0.0  # spread of a step's time, as a share of it

    def verify_seconds(self, num_tokens: float) -> float:
        at = bisect_left(self.verify, (num_tokens, 0.0))
        right = min(max(at, 1), len(self.verify) - 1)
        (x0, y0), (x1, y1) = self.verify[right - 1], self.verify[right]
        return y0 + (y1 - y0) * (num_tokens - x0) / (x1 - x0)

    def draft_seconds(self, num_draft_tokens: int, rows: int) -> float:
        return num_draft_tokens * self.draft_token * max(1.0, rows / self.draft_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextKind:
    """How one kind of request lets itself be drafted."""

    name: str
    temperature: float
    model: float  # share of a model's draft tokens that stand, those before it given
    guessed: float  # share of passes whose outcome a drafter that runs ahead had drafted for
    long_match: float  # share of passes with a long n-gram match, and of its tokens that stand
    long_right: float
    short_match: float
    short_right: float
    prompt_tokens: int = 45


# Verify: the runner's own steps and host gaps, 8B shape, docs/performance.md; draft step: a 135M model launched from
# a graph; the rest: loopback. On CPUs SmolLM2 and its draft LM: steps such that plain decoding with prompts gives the
# measured rates at 1, 4, 16 and 64 streams; what drafting takes from a pass on shared cores such that the model's do.
MACHINES: Final[Mapping[str, Machine]] = {
    machine.name: machine
    for machine in (
        Machine(
            name="gpu-8b",
            verify=((1, 4.7e-3), (5, 4.8e-3), (32, 7.2e-3), (160, 9.1e-3), (512, 17e-3), (2048, 51e-3)),
            draft_token=0.5e-3,
            draft_rows=64,
            round_trip=0.4e-3,
            overlaps=True,
            draft_prompt=5e-6,
            jitter=0.03,
        ),
        Machine(
            name="cpu-own",
            verify=((1, 29e-3), (9, 41e-3), (37, 55e-3), (150, 112e-3), (600, 360e-3)),
            draft_token=4e-3,
            draft_rows=4,
            round_trip=2.5e-3,
            overlaps=False,
            contention=0.1,
            draft_prompt=0.3e-3,
            host=0.5e-3,
            jitter=0.08,
        ),
        Machine(
            name="cpu-shared",
            verify=((1, 26e-3), (9, 40e-3), (37, 75e-3), (150, 205e-3), (600, 700e-3)),
            draft_token=4e-3,
            draft_rows=10,
            round_trip=8e-3,
            overlaps=False,
            contention=3.0,
            draft_prompt=0.3e-3,
            host=1.5e-3,
            jitter=0.12,
        ),
    )
}

KINDS: Final[Mapping[str, TextKind]] = {
    kind.name: kind
    for kind in (
        TextKind(
            name="chat", temperature=0.0, model=0.68, guessed=0.7,
            long_match=0.05, long_right=0.6, short_match=0.25, short_right=0.25,
        ),
        TextKind(
            name="copying", temperature=0.0, model=0.8, guessed=0.8,
            long_match=0.75, long_right=0.9, short_match=0.15, short_right=0.5, prompt_tokens=110,
        ),
        TextKind(
            name="hot", temperature=1.5, model=0.15, guessed=0.3,
            long_match=0.005, long_right=0.2, short_match=0.1, short_right=0.03,
        ),
    )
}  # fmt: skip
MIXED: Final = (  # as they come in the recorded load
    KINDS["chat"],
    KINDS["copying"],
    KINDS["hot"],
    TextKind(
        name="warm", temperature=0.7, model=0.6, guessed=0.6,
        long_match=0.03, long_right=0.5, short_match=0.2, short_right=0.2,
    ),
    KINDS["copying"],
    KINDS["hot"],
)  # fmt: skip
