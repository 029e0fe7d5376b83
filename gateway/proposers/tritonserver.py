"""Drafts of one sequence that a model on NVIDIA Triton Inference Server makes. Knows committed tokens and that server.

What the server says is taken as named tokens without probabilities, whatever it drew them from: they are checked by
match, so any choice of them is right (docs/exactness.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import takewhile

from gateway.peers.tritonserver import Lost, Refused, TritonServer
from gateway.policy.tenants import TRITONSERVER
from gateway.proposers.one_hot import one_hot, remainder
from gateway.proposers.proposer import DraftRecord, SendDraft
from slipstream.exchange import Commit, Draft
from slipstream.wire.drafts import draft_to_wire


class TritonServerDrafts:
    """Keeps 2K + 1 tokens ahead: after a pass that accepts K and adds one, the verifier has K more in its tree.

    Asks only for what is missing, in one call at a time; the next one starts from what is final by then. An answer that
    comes late counts as far as it agrees with that. Without the server nothing happens: the verifier goes on by itself.
    """

    def __init__(
        self,
        sequence_id: int,
        num_draft_tokens: int,
        server: TritonServer,
        vocab_size: Callable[[], int],  # of the target, where the sequence runs now
        send: SendDraft,
        record: DraftRecord,
    ) -> None:
        self._sequence_id = sequence_id
        self._path_length = 2 * num_draft_tokens + 1
        self._server = server
        self._vocab_size = vocab_size
        self._send = send
        self._record = record
        self._token_ids: list[int] = []  # committed
        self._ahead: tuple[int, ...] = ()  # what the verifier's tree holds after them
        self._draw = 0
        self._call: asyncio.Task[None] | None = None
        self._is_refused = False

    @property
    def has_drafts(self) -> bool:
        """Whether the verifier has some of them for the next pass."""
        return bool(self._ahead)

    def start(self, token_ids: Sequence[int]) -> None:
        self._token_ids = list(token_ids)
        self._ahead = ()
        self._ask()

    def observe(self, commit: Commit) -> None:
        known = len(self._token_ids) - commit.base  # 0, unless a move in between started from these tokens
        new = commit.token_ids[known:]
        self._token_ids += new
        self._ahead = remainder(self._ahead, new)
        self._ask()

    def redraft(self, num_draft_tokens: int, *, is_alone: bool) -> None:
        """Another K from now on, 0 to be silent."""
        self._path_length = 2 * num_draft_tokens + 1 if num_draft_tokens else 0
        if not num_draft_tokens:
            self.close()
        elif self._token_ids:
            self._ask()

    def close(self) -> None:
        self._ahead = ()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    @property
    def _num_missing(self) -> int:
        return self._path_length - len(self._ahead)

    def _ask(self) -> None:
        if self._call is None and self._num_missing > 0 and self._server.available and not self._is_refused:
            self._call = asyncio.create_task(self._draft())

    async def _draft(self) -> None:
        try:
            while await self._draft_once():
                pass
        except Lost:
            pass  # asked again with the first commit after its return
        except Refused:
            self._is_refused = True
        finally:
            if self._call is asyncio.current_task():  # else another has taken its place
                self._call = None

    async def _draft_once(self) -> bool:
        """One call; returns whether there is reason for another."""
        began = time.monotonic()
        async with self._server.turn:
            base, ahead, num_tokens = len(self._token_ids), self._ahead, self._num_missing
            if num_tokens <= 0:
                return False
            called = time.monotonic()
            answer = await self._server.draft([*self._token_ids, *ahead], num_tokens)
        now = time.monotonic()
        self._record_times(num_tokens, call=now - called, round_trip=now - began)
        drafted = tuple(takewhile(lambda token_id: 0 <= token_id < self._vocab_size(), answer[:num_tokens]))
        self._take(base, ahead + drafted)
        return bool(drafted) or len(self._token_ids) > base

    def _take(self, base: int, path: tuple[int, ...]) -> None:
        left = remainder(path, tuple(self._token_ids[base:]))
        if len(left) > len(self._ahead):
            self._ahead = left
            draft = Draft(self._sequence_id, len(self._token_ids), TRITONSERVER, self._draw, one_hot(left))
            self._send(draft_to_wire(draft))
            self._draw += 1

    def _record_times(self, num_tokens: int, *, call: float, round_trip: float) -> None:
        """The server reports no times: what grows with the tokens counts as drafting, the rest as the wire."""
        draft = self._server.times.seconds_of_tokens(num_tokens, call)
        self._record.record_draft_batch(
            TRITONSERVER, draft_us=round(draft * 1e6), wire_us=max(1, round((round_trip - draft) * 1e6))
        )
