"""What an evaluation found, as numbers, JSON and a table. Knows counts of passes; asks nobody."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from launcher.figures import Figures
from slipstream.exchange import Commit
from slipstream.wire.v1 import generation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One way of drafting, over all prompts."""

    name: str
    figures: Figures

    @classmethod
    def of_passes(cls, name: str, answers: Iterable[Sequence[Commit]]) -> Evaluation:
        figures = Figures()
        for commits in answers:
            figures.add(usage_of(commits), pb.Timings())
        return cls(name, figures)

    @property
    def agreement(self) -> float:
        """Of the draft tokens that followed accepted ones only, the share that was accepted: by position, in sum."""
        figures = self.figures
        reached = (figures.num_drafts, *figures.accepted_per_position)
        decided = sum(map(min, reached, figures.submitted_per_position))
        return figures.num_accepted / decided if decided else 0.0

    def as_dict(self) -> dict[str, Any]:
        figures = self.figures
        return {
            "name": self.name,
            "acceptance_length": figures.acceptance_length,
            "acceptance_per_position": figures.acceptance_per_position,
            "agreement": self.agreement,
            "tokens_per_pass": figures.tokens_per_pass,
            "output_tokens": figures.num_tokens,
            "passes": figures.num_passes,
            "drafts": figures.num_drafts,
            "num_draft_tokens": figures.num_draft_tokens,
            "accepted_tokens": figures.num_accepted,
        }


def usage_of(commits: Sequence[Commit]) -> pb.Usage:
    """One answer's counts, as the gateway adds them up."""
    drafted = [commit for commit in commits if commit.num_draft_tokens]
    most = max((commit.num_draft_tokens for commit in drafted), default=0)
    return pb.Usage(
        completion_tokens=sum(len(commit.token_ids) for commit in commits),
        num_passes=len(commits),
        num_drafts=len(drafted),
        num_draft_tokens=sum(commit.num_draft_tokens for commit in drafted),
        accepted_tokens=sum(commit.num_accepted for commit in drafted),
        accepted_per_position=[sum(commit.num_accepted > i for commit in drafted) for i in range(most)],
        submitted_per_position=[sum(commit.num_draft_tokens > i for commit in drafted) for i in range(most)],
    )


def as_json_text(evaluations: Sequence[Evaluation]) -> str:
    return json.dumps([one.as_dict() for one in evaluations], indent=2)


def as_table(evaluations: Sequence[Evaluation]) -> Table:
    table = Table(title="Acceptance: mean length, agreement, by position", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("proposer", overflow="fold")
    for name in ("length", "agreement", "tok/pass", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("accepted at 1, 2, 3...", no_wrap=True)
    for one in evaluations:
        figures = one.figures
        table.add_row(
            one.name,
            f"{figures.acceptance_length:.2f}",
            f"{one.agreement:.3f}",
            f"{figures.tokens_per_pass:.2f}",
            str(figures.num_tokens),
            " ".join(f"{rate:.2f}" for rate in figures.acceptance_per_position) or "no drafts",
        )
    return table
