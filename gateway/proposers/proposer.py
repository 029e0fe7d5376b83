"""What a session expects of whoever drafts for it. Knows commits; each implementation knows where drafts come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from slipstream.exchange import Commit
from slipstream.wire.v1 import exchange_pb2

SendDraft = Callable[[exchange_pb2.Draft], None]


class Proposer(Protocol):
    """Drafts for one sequence; where its drafts go was given to it when it was made."""

    def start(self, token_ids: Sequence[int]) -> None:
        """Begin, or begin again, on a verifier that has these committed tokens and no drafts."""

    def observe(self, commit: Commit) -> None:
        """Tokens became final."""

    def close(self) -> None:
        """No more drafts are wanted."""
