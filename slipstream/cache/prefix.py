"""Names the contents of full KV blocks, so that equal prefixes share them. Knows token ids; knows no blocks in use."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from slipstream.cache.block_pool import BlockPool

_DIGEST_BYTES = 16


class PrefixHashes:
    """The hash chain of one sequence's full blocks: each hash names a block's tokens and everything before them.

    The chain starts from the tenant: one tenant can neither use nor time what another one cached.
    """

    def __init__(self, tenant: str, block_size: int) -> None:
        self._root = hashlib.blake2b(tenant.encode(), digest_size=_DIGEST_BYTES).digest()
        self._block_size = block_size
        self._hashes: list[bytes] = []

    def of(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[bytes]:
        """Hashes of the full blocks among the first `num_tokens`. Tokens may be added between calls, never changed."""
        num_full = num_tokens // self._block_size
        for i in range(len(self._hashes), num_full):
            block = token_ids[i * self._block_size : (i + 1) * self._block_size]
            parent = self._hashes[-1] if self._hashes else self._root
            content = parent + np.asarray(block, dtype=np.int32).tobytes()
            self._hashes.append(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())
        return self._hashes[:num_full]


def find_prefix(pool: BlockPool, hashes: Sequence[bytes]) -> list[int]:
    """The longest run of cached blocks from the start of the chain."""
    found: list[int] = []
    for block_hash in hashes:
        block_id = pool.find(block_hash)
        if block_id is None:
            break
        found.append(block_id)
    return found
