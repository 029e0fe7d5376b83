"""Which part of a model one rank holds. Knows shapes; no tensors and no other rank.

Heads, the feed-forward block's inner units and the vocabulary are cut into equal pieces, the last of them padded with
zeros: a head of zeros attends to nothing and adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.models.config import ModelConfig

INNER_UNITS = 16  # a rank's inner units are a multiple: rows of weights stay aligned
TOKENS = 64  # a rank's tokens are a multiple, of 4 at least: noise comes in fours of tokens


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank `rank` of `size`."""

    rank: int = 0
    size: int = 1

    def share(self, config: ModelConfig) -> ModelConfig:
        """What one rank computes, as a model of its own; the same for every rank. ValueError if there are too many."""
        if self.size == 1:
            return config
        if self.size > config.num_kv_heads:
            raise ValueError(
                f"tensor_parallel_size is {self.size}, but the model has {config.num_kv_heads} KV heads; "
                f"it must be <= {config.num_kv_heads}"
            )
        kv_heads = _piece(config.num_kv_heads, self.size)
        return replace(
            config,
            num_kv_heads=kv_heads,
            num_heads=kv_heads * (config.num_heads // config.num_kv_heads),
            intermediate_size=_piece(config.intermediate_size, self.size, INNER_UNITS),
            vocab_size=_piece(config.vocab_size, self.size, TOKENS),
        )

    def tokens(self, config: ModelConfig) -> range:
        """The tokens whose rows of embedding and head this rank holds; fewer than its share at the end."""
        piece = self.share(config).vocab_size
        first = self.rank * piece
        return range(first, min(first + piece, config.vocab_size))


def _piece(total: int, size: int, multiple: int = 1) -> int:
    """One rank's part, rounded up."""
    return -(-total // (size * multiple)) * multiple
