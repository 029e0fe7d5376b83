"""Draft steps through the kernels of kernels/gpu/draft_step: in one launch, or in five a layer. Knows no sequences."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.gpu.draft_step.barrier import PATIENCE, Sync
from slipstream.kernels.gpu.draft_step.operands import MOST_ROWS, Cache, Rows, Scratch, Sizes, Weights
from slipstream.kernels.gpu.draft_step.plan import SPLITS, plan
from slipstream.kernels.gpu.draft_step.step import PER_LAYER, Phase, build_phases, launch_phase, launch_step, most_tiles
from slipstream.layers.linear import Linear
from slipstream.layers.norm import RMSNorm
from slipstream.models.config import ModelConfig
from slipstream.models.llama import DecoderLayer, LlamaModel


@dataclass(frozen=True, slots=True)
class Ground:
    """What all fused steps of a model share. Making it turns the model's weights into views."""

    config: ModelConfig
    block_size: int
    wide: bool  # fp32, interpreted
    weights: Weights
    cache: Cache
    scratch: Scratch

    @classmethod
    def of(cls, model: LlamaModel, kv_cache: KVCache, max_model_len: int) -> Ground:
        keys, values = kv_cache.stacked
        return cls(
            config=model.config,
            block_size=kv_cache.block_size,
            wide=model.dtype == torch.float32,
            weights=stacked_weights(model, max_model_len),
            cache=Cache(keys, values, keys.stride(0)),
            scratch=make_scratch(model),
        )


class FusedStep:
    """Five launches a layer."""

    most_rows: Final = MOST_ROWS.value

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        num_rows = len(token_ids)
        assert num_rows <= self.most_rows, f"{num_rows} rows: scratch memory is for {self.most_rows}"
        assert all(x.is_contiguous() for x in (token_ids, context_lens, block_tables))
        rows = Rows(token_ids, context_lens, block_tables, block_tables.shape[1], float(num_rows))
        self._launch(rows, self.sizes(num_rows))
        hidden: torch.Tensor = self._ground.scratch.hidden[:num_rows]
        return hidden

    def build(self, counts: Collection[int], max_blocks: int) -> None:
        """Compiles ahead what steps of so many rows need, all of it at once. A step builds what it lacks itself."""
        ground = self._ground
        ids = torch.zeros(1, dtype=torch.int64, device=ground.scratch.hidden.device)
        rows = Rows(ids, ids, ids.expand(1, max_blocks).contiguous(), max_blocks, 1.0)
        all_sizes = list(dict.fromkeys(self.sizes(count) for count in counts))
        build_phases(rows, ground.weights, ground.cache, ground.scratch, all_sizes)

    def sizes(self, num_rows: int) -> Sizes:
        ground = self._ground
        return plan(ground.config, num_rows=num_rows, block_size=ground.block_size, wide=ground.wide)

    def _launch(self, rows: Rows, sizes: Sizes) -> None:
        self.run_phase(Phase.EMBED, 0, rows, sizes)
        for layer in range(self._ground.config.num_layers):
            for phase in PER_LAYER:
                self.run_phase(phase, layer, rows, sizes)
        self.run_phase(Phase.FINISH, 0, rows, sizes)

    def run_phase(self, phase: Phase, layer: int, rows: Rows, sizes: Sizes) -> None:
        ground = self._ground
        launch_phase(phase, layer, rows, ground.weights, ground.cache, ground.scratch, sizes)


class PersistentStep(FusedStep):
    """One launch. `error` becomes 1, for good, if programs once waited for each other in vain."""

    def __init__(self, ground: Ground, num_programs: int) -> None:
        super().__init__(ground)
        tiles = most_tiles(self.sizes(1))
        if tiles > num_programs:
            raise ValueError(f"it is cut into {tiles} tiles, for {num_programs} multiprocessors")
        self._num_programs, device = num_programs, ground.scratch.hidden.device
        counter, start = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.error = torch.zeros(1, dtype=torch.int32, device=device)
        self._sync = Sync(counter, start, self.error, PATIENCE)

    def _launch(self, rows: Rows, sizes: Sizes) -> None:
        ground = self._ground
        launch_step(rows, ground.weights, ground.cache, ground.scratch, self._sync, sizes, self._num_programs)


def stacked_weights(model: LlamaModel, max_model_len: int) -> Weights:
    """All layers' weights side by side. The model's own become views of them, so nothing is there twice."""
    layers = [layer for layer in model.layers if isinstance(layer, DecoderLayer)]
    positions = torch.arange(max_model_len, device=model.embedding.device)
    cos, sin = model.rotary(positions, model.dtype)
    half = model.config.head_dim // 2
    return Weights(
        embedding=model.embedding,
        input_norm=_stack([layer.input_norm for layer in layers]),
        qkv=_stack([layer.attention.qkv_proj for layer in layers]),
        output=_stack([layer.attention.o_proj for layer in layers]),
        mlp_norm=_stack([layer.mlp_norm for layer in layers]),
        gate_up=_stack([layer.mlp.gate_up_proj for layer in layers]),
        down=_stack([layer.mlp.down_proj for layer in layers]),
        norm=model.norm.weight,
        cos=cos[:, 0, :half].contiguous(),
        sin=sin[:, 0, half:].contiguous(),
        eps=model.config.rms_norm_eps,
    )


def _stack(modules: list[Linear] | list[RMSNorm]) -> torch.Tensor:
    stacked = torch.stack([module.weight.detach() for module in modules])
    for module, weight in zip(modules, stacked, strict=True):
        module.weight = nn.Parameter(weight, requires_grad=False)
    return stacked


def make_scratch(model: LlamaModel) -> Scratch:
    config, like, most_rows = model.config, model.embedding.detach(), MOST_ROWS.value
    attended = (most_rows, config.num_heads)
    return Scratch(
        residual=like.new_zeros(most_rows, config.hidden_size, dtype=torch.float32),
        query=like.new_zeros(*attended, config.head_dim),
        partial=like.new_zeros(*attended, SPLITS, config.head_dim, dtype=torch.float32),
        log_weights=like.new_zeros(*attended, SPLITS, dtype=torch.float32),
        activated=like.new_zeros(most_rows, config.intermediate_size),
        hidden=like.new_zeros(most_rows, config.hidden_size),
    )
