"""Which models the draft step's kernels can run, and how their work is cut into programs. Knows sizes, no tensors."""

from __future__ import annotations

from slipstream.kernels.gpu.draft_step.operands import CHUNK, TILE_ROWS, Sizes
from slipstream.models.config import ModelConfig

MOST_ROWS = 64  # taken sixteen at a time, one after another
MOST_CHUNKS = 16  # of the hidden size: a program keeps the whole depth of its weights in registers
MOST_UNITS = 32  # of the feed-forward block, for the same reason
MOST_SPLITS = 8  # of a context: a program merges those of sixteen rows at once
NARROWEST = 8  # columns of a tensor core's product


def unsuited(config: ModelConfig, programs: int) -> str | None:
    """Why the kernels cannot run such a model, if they cannot."""
    if config.qkv_bias or config.output_bias or config.mlp_bias:
        return "its products have biases"
    if config.qk_norm or config.sliding_window:
        return "its attention is not plain"
    if not (config.head_dim in (16, 32, 64, 128) and config.num_heads <= TILE_ROWS.value * config.num_kv_heads):
        return f"its heads are {config.num_heads} of {config.head_dim} for {config.num_kv_heads} KV heads"
    if config.hidden_size % 16 or config.intermediate_size % 16:
        return "its sizes are no multiples of 16"
    sizes = plan(config, programs, num_rows=1, block_size=16)
    if sizes.chunks > MOST_CHUNKS or sizes.inner_tile > MOST_UNITS:
        return f"it is too large: {config.hidden_size} x {config.intermediate_size}"
    return None


def plan(config: ModelConfig, programs: int, *, num_rows: int, block_size: int, wide: bool = False) -> Sizes:
    """Every tile of a phase gets a program of its own. `wide`: fp32, interpreted."""
    queries_keys_values = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim // 2
    hidden, inner = config.hidden_size, config.intermediate_size
    down_depth, down_tile = _down_tile(hidden, inner, programs)
    return Sizes(
        layers=config.num_layers,
        hidden=hidden,
        chunks=_power_of_two(-(-hidden // CHUNK.value)),
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=inner,
        block_size=block_size,
        splits=_splits(num_rows * config.num_kv_heads, programs),
        keys=64,
        pair_tile=min(_tile(queries_keys_values, programs), config.head_dim // 2),
        output_tile=max(_tile(hidden * config.num_heads, programs), 16),
        inner_tile=max(_tile(inner, programs), 16),
        down_depth=down_depth,
        down_tile=down_tile,
        precision="ieee" if wide else "tf32",
    )


def _tile(width: int, programs: int) -> int:
    """The smallest power of two with which so many programs cover the width."""
    return max(_power_of_two(-(-width // programs)), NARROWEST)


def _down_tile(hidden: int, inner: int, programs: int) -> tuple[int, int]:
    """Depth and width: the deeper the slices, the fewer programs add to one sum."""
    depth, tile = 128, 64
    while -(-inner // depth) * -(-hidden // tile) > programs:
        depth, tile = (2 * depth, tile) if depth <= 2 * tile else (depth, 2 * tile)
    return depth, tile


def _splits(pairs: int, programs: int) -> int:
    """A power of two with which (row, KV head, split) do not outnumber the programs."""
    splits = max(programs // max(pairs, 1), 1)
    return min(_power_of_two(splits + 1) // 2, MOST_SPLITS)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
