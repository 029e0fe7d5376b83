"""The blocks that hold one sequence's KV, in order. Knows the block pool; knows nothing of tokens or tensors."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.cache.block_pool import BlockPool


class BlockTable:
    """Grows and shrinks with its sequence. Block i holds positions [i * block_size, (i + 1) * block_size)."""

    def __init__(self, pool: BlockPool, shared: Sequence[int] = ()) -> None:
        """Starts with references to full blocks that others hold or held (`shared`), or empty."""
        self._pool = pool
        for block_id in shared:
            pool.share(block_id)
        self._block_ids = list(shared)

    @property
    def block_ids(self) -> Sequence[int]:
        return self._block_ids

    @property
    def capacity(self) -> int:
        """Tokens that fit without growing."""
        return len(self._block_ids) * self._pool.block_size

    def grow(self, num_tokens: int) -> None:
        """Makes room for `num_tokens` in all. Raises OutOfBlocks and changes nothing."""
        missing = self._blocks_for(num_tokens) - len(self._block_ids)
        if missing > 0:
            self._block_ids.extend(self._pool.allocate(missing))

    def truncate(self, num_tokens: int) -> None:
        """Gives back the blocks past the first `num_tokens`.

        The trap: a block that a fork shares must not be written again, so never truncate into what a fork builds on
        while the fork lives.
        """
        keep = self._blocks_for(num_tokens)
        if keep >= len(self._block_ids):
            return
        for block_id in self._block_ids[keep:]:
            self._pool.release(block_id)
        del self._block_ids[keep:]

    def fork(self, num_tokens: int) -> tuple[BlockTable, list[tuple[int, int]]]:
        """A second table for the first `num_tokens`, and the (source, target) blocks whose KV must be copied.

        Full blocks are shared; a partly filled one is copied, for both sides go on writing there.
        Raises OutOfBlocks and changes nothing.
        """
        assert num_tokens <= self.capacity, f"fork at {num_tokens} tokens, capacity {self.capacity}"
        num_full = num_tokens // self._pool.block_size
        own = self._pool.allocate(self._blocks_for(num_tokens) - num_full)
        copy = BlockTable(self._pool, self._block_ids[:num_full])
        copy._block_ids.extend(own)
        return copy, list(zip(self._block_ids[num_full:], own, strict=False))

    def release(self) -> None:
        """Gives everything back; the table is empty and may grow again."""
        self.truncate(0)

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._pool.block_size)
