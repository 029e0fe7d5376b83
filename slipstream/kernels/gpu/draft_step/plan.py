"""Which models the draft step's kernels can run, and how their work is cut into programs. Knows sizes, no tensors."""

from __future__ import annotations

from slipstream.kernels.gpu.draft_step.operands import Sizes
from slipstream.models.config import ModelConfig

LARGEST = 1024  # hidden size: a program keeps the whole depth of its weights
CHUNKS = 8  # of the hidden size: one for each warp
SHARERS = 16  # rows of a tensor core's product
NARROWEST = 8  # columns of one
FEWEST_TILE_ROWS, MOST_TILE_ROWS = 8, 32  # the fewer, the fewer instructions, of which a phase's time is made
UNITS = 16  # depth of one
OUTPUT_COLUMNS = 64
DOWN_UNITS = 128  # that one program adds up: the more, the fewer programs add to one number
SPLITS, KEYS = 8, 128  # of a context, and how many keys a turn takes: one turn up to 1,024


def unsuited(config: ModelConfig) -> str | None:
    """Why the kernels cannot run such a model, if they cannot."""
    if config.qkv_bias or config.output_bias or config.mlp_bias:
        return "its products have biases"
    if config.qk_norm or config.sliding_window:
        return "its attention is not plain"
    if not (config.head_dim in (16, 32, 64, 128) and config.num_heads <= SHARERS * config.num_kv_heads):
        return f"its heads are {config.num_heads} of {config.head_dim} for {config.num_kv_heads} KV heads"
    if config.hidden_size % 16 or config.intermediate_size % 16:
        return "its sizes are no multiples of 16"
    if config.hidden_size > LARGEST:
        return f"its hidden size of {config.hidden_size} is too large"
    return None


def plan(config: ModelConfig, *, num_rows: int, block_size: int, wide: bool = False) -> Sizes:
    """Every tile of a phase gets a program of its own. `wide`: fp32, interpreted."""
    hidden = config.hidden_size
    depth = max(_power_of_two(hidden // CHUNKS + 1) // 2, UNITS)
    left = max(hidden - CHUNKS * depth, 0)
    return Sizes(
        layers=config.num_layers,
        hidden=hidden,
        chunks=CHUNKS,
        depth=depth,
        rest=max(_power_of_two(-(-left // CHUNKS)), UNITS),
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=config.intermediate_size,
        block_size=block_size,
        tile_rows=min(max(_power_of_two(num_rows), FEWEST_TILE_ROWS), MOST_TILE_ROWS),
        sharers=SHARERS,
        splits=SPLITS,
        keys=KEYS,
        pair_tile=NARROWEST,
        output_tile=OUTPUT_COLUMNS,
        unit_tile=UNITS,
        down_depth=DOWN_UNITS,
        down_tile=OUTPUT_COLUMNS,
        precision="ieee" if wide else "tf32",
    )


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()
