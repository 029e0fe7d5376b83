"""Draft steps through the kernels of kernels/gpu/draft_step: in one launch, or in five a layer. Knows no sequences."""

from __future__ import annotations

import torch
from torch import nn

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.gpu.draft_step.barrier import PATIENCE, Sync
from slipstream.kernels.gpu.draft_step.operands import Cache, Rows, Scratch, Sizes, Weights
from slipstream.kernels.gpu.draft_step.plan import MOST_ROWS, MOST_SPLITS, plan
from slipstream.kernels.gpu.draft_step.step import PER_LAYER, Phase, launch_phase, launch_step
from slipstream.layers.linear import Linear
from slipstream.layers.norm import RMSNorm
from slipstream.models.llama import DecoderLayer, LlamaModel


class FusedStep:
    """Five launches a layer."""

    def __init__(self, model: LlamaModel, kv_cache: KVCache, max_model_len: int, *, num_programs: int) -> None:
        self._config, self._num_programs = model.config, num_programs
        self._block_size = kv_cache.block_size
        self._wide = model.dtype == torch.float32
        self._weights = stacked_weights(model, max_model_len)
        keys, values = kv_cache.stacked
        self._cache = Cache(keys, values, keys.stride(0))
        self._scratch = make_scratch(model)

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        num_rows = len(token_ids)
        assert num_rows <= MOST_ROWS, f"{num_rows} rows: scratch memory is for {MOST_ROWS}"
        assert all(x.is_contiguous() for x in (token_ids, context_lens, block_tables))
        rows = Rows(token_ids, context_lens, block_tables, block_tables.shape[1], num_rows)
        self._launch(rows, self.sizes(num_rows))
        hidden: torch.Tensor = self._scratch.hidden[:num_rows]
        return hidden

    def sizes(self, num_rows: int) -> Sizes:
        config, programs = self._config, self._num_programs
        return plan(config, programs, num_rows=num_rows, block_size=self._block_size, wide=self._wide)

    def _launch(self, rows: Rows, sizes: Sizes) -> None:
        self.run_phase(Phase.EMBED, 0, rows, sizes)
        for layer in range(self._config.num_layers):
            for phase in PER_LAYER:
                self.run_phase(phase, layer, rows, sizes)
        self.run_phase(Phase.FINISH, 0, rows, sizes)

    def run_phase(self, phase: Phase, layer: int, rows: Rows, sizes: Sizes) -> None:
        launch_phase(phase, layer, rows, self._weights, self._cache, self._scratch, sizes)


class PersistentStep(FusedStep):
    """One launch. `error` becomes 1, for good, if programs once waited for each other in vain."""

    def __init__(self, model: LlamaModel, kv_cache: KVCache, max_model_len: int, *, num_programs: int) -> None:
        super().__init__(model, kv_cache, max_model_len, num_programs=num_programs)
        device = model.embedding.device
        counter, start = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.error = torch.zeros(1, dtype=torch.int32, device=device)
        self._sync = Sync(counter, start, self.error, PATIENCE)

    def _launch(self, rows: Rows, sizes: Sizes) -> None:
        launch_step(rows, self._weights, self._cache, self._scratch, self._sync, sizes, self._num_programs)


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
    config, like = model.config, model.embedding.detach()
    attended = (MOST_ROWS, config.num_heads)
    return Scratch(
        residual=like.new_zeros(MOST_ROWS, config.hidden_size, dtype=torch.float32),
        query=like.new_zeros(*attended, config.head_dim),
        partial=like.new_zeros(*attended, MOST_SPLITS, config.head_dim, dtype=torch.float32),
        log_weights=like.new_zeros(*attended, MOST_SPLITS, dtype=torch.float32),
        activated=like.new_zeros(MOST_ROWS, config.intermediate_size),
        hidden=like.new_zeros(MOST_ROWS, config.hidden_size),
    )
