"""What a bench run measured, as numbers, as JSON and as a table. Knows samples and usage; asks nobody."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from launcher.figures import Figures
from slipstream.wire.v1 import generation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Sample:
    """One request, as the client saw it."""

    first_token_s: float
    per_token_s: float | None  # after the first message with tokens; None if there was only one


@dataclass(slots=True)
class BenchReport:
    """Filled while requests end."""

    num_streams: int
    seconds: float = 0.0  # of the whole run
    samples: list[Sample] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, sample: Sample, last: pb.GenerateResponse) -> None:
        self.samples.append(sample)
        self.figures.add(last.usage, last.timings)

    def add_failure(self, text: str) -> None:
        self.failures[text] += 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "streams": self.num_streams,
            "requests": len(self.samples),
            "failures": dict(self.failures),
            "seconds": self.seconds,
            "output_tokens": self.figures.num_tokens,
            "tokens_per_second": self.figures.num_tokens / self.seconds if self.seconds else 0.0,
            "ttft_ms": percentiles([sample.first_token_s for sample in self.samples]),
            "tpot_ms": percentiles([s.per_token_s for s in self.samples if s.per_token_s is not None]),
            "acceptance_length": self.figures.acceptance_length,
            "tokens_per_pass": self.figures.tokens_per_pass,
            "num_draft_tokens": self.figures.num_draft_tokens,
            "accepted_tokens": self.figures.num_accepted,
        }

    def as_json_text(self) -> str:
        return json.dumps(self.as_dict())

    def as_table(self) -> Table:
        values = self.as_dict()
        table = Table(box=SIMPLE, show_header=False, padding=(0, 1, 0, 0))
        table.add_row("streams x requests", f"{self.num_streams} streams, {len(self.samples)} requests answered")
        table.add_row("output", f"{values['output_tokens']} tokens in {self.seconds:.2f} s")
        table.add_row("tok/s, all streams", f"{values['tokens_per_second']:.1f}")
        table.add_row("TTFT p50 / p99", _milliseconds(values["ttft_ms"]))
        table.add_row("TPOT p50 / p99", _milliseconds(values["tpot_ms"]))
        table.add_row("acceptance length", f"{values['acceptance_length']:.2f}")
        table.add_row("tokens per pass", f"{values['tokens_per_pass']:.2f}")
        for text, count in self.failures.most_common():
            table.add_row(f"[red]{count} failed[/]", text)
        return table


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds; 0 if nothing was measured."""
    if not seconds:
        return {"p50": 0.0, "p99": 0.0}
    p50, p99 = np.percentile(seconds, (50, 99)) * 1000
    return {"p50": float(p50), "p99": float(p99)}


def _milliseconds(values: dict[str, float]) -> str:
    return f"{values['p50']:.1f} / {values['p99']:.1f} ms"
