"""What a session expects of whoever drafts for it. Knows commits; each implementation knows where drafts come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.peers.dialects import VerifierItem
from slipstream.exchange import Commit
from slipstream.wire.v1 import exchange_pb2

SendDraft = Callable[[exchange_pb2.Draft], None]
SendToVerifier = Callable[[VerifierItem], None]


class DraftRecord(Protocol):
    """Where the times of drafts that are made elsewhere are noted."""

    def record_draft_batch(self, proposer: str, *, draft_us: int, wire_us: int) -> None:
        """One batch came; `wire_us` is 0 for what was pushed ahead of need."""


class Proposer(Protocol):
    """Drafts for one sequence; where its drafts go was given to it when it was made."""

    def start(self, token_ids: Sequence[int]) -> None:
        """Begin, or begin again, on a verifier that has these committed tokens and no drafts."""

    def observe(self, commit: Commit) -> None:
        """Tokens became final."""

    def close(self) -> None:
        """No more drafts are wanted."""


class LocalProposer(Proposer, Protocol):
    """One that lives here and reads every commit, also while it does not draft."""

    @property
    def has_drafts(self) -> bool:
        """Whether the verifier has some of its drafts for the next pass."""

    def redraft(self, num_draft_tokens: int, *, is_alone: bool) -> None:
        """Another K from now on, 0 to be silent; beside another proposer, or in effect alone."""
