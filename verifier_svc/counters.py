"""What the verifier counts, by tenant and proposer. Knows numbers only; how they are shown is not its matter."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from slipstream.exchange import Commit
from verifier_svc.draft_check import Refusal


@dataclass(slots=True)
class PassCounts:
    """Passes of one tenant's sequences with one proposer's drafts; an empty proposer stands for passes without any."""

    passes: int = 0
    hits: int = 0  # passes whose sequence had a draft when it became ready
    draft_tokens: int = 0
    accepted_tokens: int = 0
    committed_tokens: int = 0


@dataclass(slots=True)
class Counters:
    passes: defaultdict[tuple[str, str], PassCounts] = field(default_factory=lambda: defaultdict(PassCounts))
    dropped_drafts: Counter[Refusal] = field(default_factory=Counter)

    def count_pass(self, tenant: str, commit: Commit) -> None:
        counts = self.passes[tenant, commit.proposer]
        counts.passes += 1
        counts.hits += commit.hit
        counts.draft_tokens += commit.num_draft_tokens
        counts.accepted_tokens += commit.num_accepted
        counts.committed_tokens += len(commit.token_ids)
