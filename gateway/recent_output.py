"""Each tenant's recent output, for n-gram drafts of its later requests. Knows tenants and token ids; no session.

Never across tenants, nor across vocabularies. Texts are read in small pieces between other work: a long one at once
would keep everybody waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from slipstream.proposers.suffix_index import SuffixIndex
from slipstream.proposers.suffix_text import SuffixText

TOKENS_AT_ONCE: Final = 128
LEAST_TOKENS: Final = 16  # fewer are not worth remembering


class Owner(NamedTuple):
    tenant: str
    vocabulary_hash: str


class RecentOutputs:
    def __init__(self) -> None:
        self._texts: dict[Owner, SuffixText] = {}
        self._unread: dict[Owner, deque[int]] = {}  # bounded as the texts are
        self._is_reading = False

    def of(self, owner: Owner, max_tokens: int) -> SuffixText:
        """What it has said of late, at most so many tokens; forgotten when the policy changes their number."""
        known = self._texts.get(owner)
        if known is None or known.max_tokens != max_tokens:
            known = self._texts[owner] = SuffixText(max_tokens)
            self._unread[owner] = deque(maxlen=max_tokens)
        return known

    def index(self, owner: Owner, max_tokens: int) -> SuffixIndex | None:
        """For one request, that of its own text and of so much of its tenant's; None if nothing is to be shared."""
        return SuffixIndex(self.of(owner, max_tokens)) if max_tokens >= LEAST_TOKENS else None

    def add(self, owner: Owner, token_ids: Sequence[int]) -> None:
        """One request's output, which is over; dropped unless somebody of this owner asks for such text."""
        text = self._texts.get(owner)
        if text is None or not token_ids:
            return
        self._unread[owner].extend(text.kept(token_ids))
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read_some)

    def _read_some(self) -> None:
        for owner, unread in self._unread.items():
            for _ in range(min(TOKENS_AT_ONCE, len(unread))):
                self._texts[owner].extend(unread.popleft())
        self._is_reading = any(self._unread.values())
        if self._is_reading:
            asyncio.get_running_loop().call_soon(self._read_some)
