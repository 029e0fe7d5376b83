"""What a drafter in the verifier's own process has to do with it. Knows events and commits; no drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.exchange import Commit
from verifier_svc.messages import Event, StreamOutput
from verifier_svc.metrics import VerifierMetrics

Post = Callable[[Event], None]


class TakeCommits(Protocol):
    def __call__(self, commits: Sequence[tuple[int, Commit]], *, waits: bool) -> None:
        """Each with its stream. `waits`: the next step waits for drafts that build on them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Beside the network, which gets the same."""

    process: str  # names it to gateways
    hear: Callable[[Post, VerifierMetrics], Post]  # how to post what the network says; from now on drafts come, too
    take_commits: TakeCommits  # on the engine's thread, as soon as tokens are final
    note_outputs: Callable[[list[StreamOutput]], list[StreamOutput]]  # there, too: what the network gets
