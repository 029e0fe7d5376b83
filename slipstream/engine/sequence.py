"""One sequence as the engine sees it: committed tokens and how much of their KV is computed. Knows no drafts."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.cache.block_pool import BlockPool
from slipstream.cache.block_table import BlockTable
from slipstream.cache.prefix import PrefixHashes, find_prefix


class EngineSequence:
    """Committed tokens, their KV blocks, and the bounds within which the scheduler may plan."""

    def __init__(
        self,
        pool: BlockPool,
        token_ids: Sequence[int],
        *,
        tenant: str,
        max_len: int,
        num_draft_tokens: int,
        reads_cache: bool = True,
    ) -> None:
        assert 0 < len(token_ids) < max_len, f"{len(token_ids)} tokens leave no room for one more below {max_len}"
        self.token_ids = list(token_ids)
        self.tenant = tenant
        self.max_len = max_len  # most tokens it may ever have: context or max_tokens, whichever is less
        self.num_draft_tokens = num_draft_tokens  # K
        self.num_computed = 0  # tokens whose KV is in the blocks
        self.num_cached = 0  # of those, how many the prefix cache held when the sequence first got a place
        self.num_reserved = 0  # tokens for which launched steps may still write KV
        self.table = BlockTable(pool)
        self._reads_cache = reads_cache  # False: each of its tokens is to be computed, not only its KV to be had
        self._pool = pool
        self._hashes = PrefixHashes(tenant, pool.block_size)
        self._num_remembered = 0
        self._started = False

    @property
    def has_started(self) -> bool:
        """It had a place before, if it has none now."""
        return self._started

    @property
    def holds_kv(self) -> bool:
        """It has a place now."""
        return bool(self.table.block_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def may_go_on(self) -> bool:
        """Whether the next token need not be its last."""
        return self.num_tokens + 1 < self.max_len

    @property
    def most_draft_tokens(self) -> int:
        """K, less what cannot be output any more: the pass adds one token after its drafts."""
        return max(0, min(self.num_draft_tokens, self.max_len - self.num_tokens - 1))

    @property
    def blocks_ahead(self) -> Sequence[bytes]:
        """Names of the full blocks whose KV is still to be computed."""
        return self._hashes.of(self.token_ids, self.num_tokens)[self.num_computed // self._pool.block_size :]

    @property
    def first_missing_block(self) -> bytes | None:
        """The name of the first block that it would have to compute if it started now; None if it could share all."""
        hashes = self._reusable()
        num_cached = len(find_prefix(self._pool, hashes))
        return hashes[num_cached] if num_cached < len(hashes) else None

    def start(self) -> None:
        """Takes over what the prefix cache holds and room for all committed tokens; OutOfBlocks changes nothing."""
        assert not self.table.block_ids, "already started"
        cached = find_prefix(self._pool, self._reusable())
        table = BlockTable(self._pool, cached)
        try:
            table.grow(self.num_tokens)
        except Exception:
            table.release()
            raise
        self.table = table
        self.num_computed = self._num_remembered = len(cached) * self._pool.block_size
        if not self._started:
            self.num_cached, self._started = self.num_computed, True

    def note_computed(self, num_tokens: int) -> None:
        """The next `num_tokens` committed tokens were fed."""
        self.num_computed += num_tokens
        self._remember()

    def commit(self, token_ids: Sequence[int], num_accepted: int) -> None:
        """Appends final tokens; the KV of the first `num_accepted` was computed when they were drafts."""
        assert self.num_uncomputed == 0, "tokens follow only when all before them are computed"
        self.token_ids.extend(token_ids)
        self.num_computed += num_accepted
        # KV past a rejection was computed from tokens that never happened.
        self.table.truncate(max(self.num_computed, self.num_reserved))
        self._remember()

    def reserve(self, num_tokens: int) -> None:
        """Makes and keeps room for what launched steps may write; OutOfBlocks changes nothing."""
        self.table.grow(num_tokens)
        self.num_reserved = num_tokens

    def release(self) -> None:
        """Gives all KV back; the tokens stay, so that it can be computed again.

        A launched step may still write to it: only where nothing is remembered, and before any later step.
        """
        self.num_reserved = 0
        self.table.release()
        self.num_computed = self._num_remembered = 0

    def _reusable(self) -> Sequence[bytes]:
        """Names of the blocks that need not be computed. The last token is always fed: its logits are wanted."""
        return self._hashes.of(self.token_ids, self.num_tokens - 1) if self._reads_cache else ()

    def _remember(self) -> None:
        """Offers newly full blocks to the prefix cache: only computed, committed tokens, never drafts."""
        size = self._pool.block_size
        if self.num_computed - self._num_remembered < size:
            return
        hashes = self._hashes.of(self.token_ids, self.num_computed)
        for i in range(self._num_remembered // size, len(hashes)):
            self._pool.remember(self.table.block_ids[i], hashes[i])
        self._num_remembered = len(hashes) * size
