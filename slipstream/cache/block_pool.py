"""Hands out KV cache blocks. Knows block ids, reference counts and hashes; knows nothing of tensors or requests."""

from __future__ import annotations

from collections import OrderedDict, deque


class OutOfBlocks(RuntimeError):
    """Not enough free blocks; nothing was taken."""


class BlockPool:
    """A fixed set of blocks. A released block that has a hash keeps its contents until its place is needed."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool of {num_blocks} blocks of {block_size} tokens; both must be >= 1")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._ref_counts = [0] * num_blocks
        self._free = deque(range(num_blocks))
        self._idle: OrderedDict[int, None] = OrderedDict()  # unused, hashed, oldest release first
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can hand out now, those with forgettable contents included."""
        return len(self._free) + len(self._idle)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    def allocate(self, count: int) -> list[int]:
        """Takes `count` blocks of unknown contents, each with one reference."""
        if count > self.num_free:
            raise OutOfBlocks(f"{count} KV blocks wanted, {self.num_free} of {self.num_blocks} free")
        return [self._take() for _ in range(count)]

    def share(self, block_id: int) -> None:
        """Adds a reference; an idle block comes back into use with its contents."""
        if self._ref_counts[block_id] == 0:
            assert block_id in self._idle, f"block {block_id} is free and has no contents to share"
            del self._idle[block_id]
        self._ref_counts[block_id] += 1

    def release(self, block_id: int) -> None:
        assert self._ref_counts[block_id] > 0, f"block {block_id} released more often than taken"
        self._ref_counts[block_id] -= 1
        if self._ref_counts[block_id] > 0:
            return
        if block_id in self._hash_of:
            self._idle[block_id] = None
        else:
            self._free.append(block_id)

    def remember(self, block_id: int, block_hash: bytes) -> None:
        """Makes a full block in use findable by its hash. The first block with a hash keeps it."""
        assert self._ref_counts[block_id] > 0, f"block {block_id} is not in use"
        if block_hash not in self._block_of and block_id not in self._hash_of:
            self._block_of[block_hash] = block_id
            self._hash_of[block_id] = block_hash

    def find(self, block_hash: bytes) -> int | None:
        """The block that holds this content, if any; `share` it before anything else is allocated."""
        return self._block_of.get(block_hash)

    def _take(self) -> int:
        if self._free:
            block_id = self._free.popleft()
        else:
            block_id, _ = self._idle.popitem(last=False)
            del self._block_of[self._hash_of.pop(block_id)]
        self._ref_counts[block_id] = 1
        return block_id
