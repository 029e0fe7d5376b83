"""What a set of answers cost and what drafting gave, as numbers and as a table. Knows usage and timings; no service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import zip_longest

from rich.box import SIMPLE_HEAD
from rich.table import Table

from slipstream.wire.v1 import generation_pb2 as pb


@dataclass(slots=True)
class Figures:
    """Sums over answers; every rate is of sums, never a mean of rates."""

    num_tokens: int = 0
    num_passes: int = 0
    num_drafts: int = 0  # passes with at least one draft token
    num_draft_tokens: int = 0
    num_accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    submitted_per_position: list[int] = field(default_factory=list)
    decode_us: int = 0  # first token to last
    num_decoded: int = 0  # tokens after the first
    verify_us: int = 0
    wait_us: int = 0
    draft_us: int = 0
    wire_us: int = 0

    def add(self, usage: pb.Usage, timings: pb.Timings) -> None:
        self.num_tokens += usage.completion_tokens
        self.num_passes += usage.num_passes
        self.num_drafts += usage.num_drafts
        self.num_draft_tokens += usage.num_draft_tokens
        self.num_accepted += usage.accepted_tokens
        self.accepted_per_position = _added(self.accepted_per_position, usage.accepted_per_position)
        self.submitted_per_position = _added(self.submitted_per_position, usage.submitted_per_position)
        self.decode_us += timings.total_us - timings.first_token_us
        self.num_decoded += max(0, usage.completion_tokens - 1)
        self.verify_us += timings.verify_us
        self.wait_us += timings.wait_us
        self.draft_us += timings.draft_us
        self.wire_us += timings.wire_us

    def merge(self, other: Figures) -> None:
        for name in (item.name for item in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, _added(mine, theirs) if isinstance(mine, list) else mine + theirs)

    @property
    def tokens_per_second(self) -> float:
        """After the first token: drafting does not touch the prompt."""
        return _ratio(self.num_decoded * 1e6, self.decode_us)

    @property
    def acceptance_length(self) -> float:
        """1 + accepted / drafts."""
        return 1 + _ratio(self.num_accepted, self.num_drafts)

    @property
    def tokens_per_pass(self) -> float:
        """Of all passes: unlike the acceptance length it shows passes without a draft."""
        return _ratio(self.num_tokens, self.num_passes)

    @property
    def acceptance_per_position(self) -> list[float]:
        """Of the drafts that reached a position, how many were accepted there."""
        pairs = zip_longest(self.accepted_per_position, self.submitted_per_position, fillvalue=0)
        return [_ratio(accepted, submitted) for accepted, submitted in pairs if submitted]

    def per_token_ms(self, total_us: int) -> float:
        return _ratio(total_us, self.num_tokens) / 1000


def comparison(rows: Iterable[tuple[str, Figures, Figures]], caption: str = "") -> Table:
    """A table of (what was asked, with drafting, without)."""
    title = "With drafting, beside the same prompts without"
    table = Table(title=title, caption=caption or None, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("prompts", no_wrap=True)
    for name in ("tok/s", "plain", "gain", "accept. len", "tok/pass"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("accepted at 1, 2, 3...", no_wrap=True)
    for name, drafted, plain in rows:
        table.add_row(
            name,
            f"{drafted.tokens_per_second:.1f}",
            f"{plain.tokens_per_second:.1f}",
            f"{speedup(drafted, plain):.2f}x",
            f"{drafted.acceptance_length:.2f}",
            f"{drafted.tokens_per_pass:.2f}",
            " ".join(f"{rate:.2f}" for rate in drafted.acceptance_per_position) or "no drafts",
        )
    return table


def time_spent(rows: Iterable[tuple[str, Figures]]) -> Table:
    """Where the time of one output token went, milliseconds. Draft and wire overlap verify: they are no sum."""
    table = Table(
        title="Milliseconds per output token; draft and wire run beside verify", box=SIMPLE_HEAD, min_width=64
    )
    table.add_column("policy")
    for name in ("draft", "wire", "verify", "wait"):
        table.add_column(name, justify="right")
    for name, figures in rows:
        spent = (figures.draft_us, figures.wire_us, figures.verify_us, figures.wait_us)
        table.add_row(name, *(f"{figures.per_token_ms(us):.2f}" for us in spent))
    return table


def speedup(drafted: Figures, plain: Figures) -> float:
    return _ratio(drafted.tokens_per_second, plain.tokens_per_second)


def _added(left: Iterable[int], right: Iterable[int]) -> list[int]:
    return [a + b for a, b in zip_longest(left, right, fillvalue=0)]


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
