"""Makes the runner that a configuration asks for: loads the model, sizes its KV cache. Runs nothing."""

from __future__ import annotations

import torch

from slipstream.cache.kv_cache import KVCache, bytes_per_block
from slipstream.config import EngineConfig
from slipstream.engine.feature_tap import feature_bytes, make_feature_tap
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.rank_runner import RankRunner
from slipstream.engine.rank_steps import SendStep, send_nowhere
from slipstream.layers.linear import can_pack
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_config, load_model, open_checkpoint
from slipstream.models.widen import SHAPES, widen, widened_config
from slipstream.parallel.ranks import ALONE, Ranks
from slipstream.timeline import NO_TIMELINE, Timeline


def make_runner(
    config: EngineConfig,
    *,
    pack_weights: bool = True,
    timeline: Timeline = NO_TIMELINE,
    ranks: Ranks = ALONE,
    send: SendStep = send_nowhere,
) -> ModelRunner:
    """Loads the model, decides how many KV blocks it gets, and sets the math library's threads.

    `pack_weights` only changes speed (see layers/linear.py). Of several ranks each loads its part, and rank 0 tells the
    others by `send` what to do.
    """
    device, dtype = _device(config), _dtype(config)
    if device.type == "cpu":
        torch.set_num_threads(config.num_threads)
    model_config = load_config(open_checkpoint(config.model, config.target_model))
    if config.widen:
        model_config = widened_config(model_config, SHAPES[config.widen])
    max_model_len = _max_model_len(config, model_config)
    share = ranks.shard.share(model_config)
    num_blocks = _num_kv_blocks(config, share, max_model_len)
    model = _load(config, dtype, device, max_model_len, ranks)
    if pack_weights and can_pack(device, dtype):
        model.pack()
    try:
        kv_cache = KVCache(share, num_blocks, config.block_size, dtype, device)
    except RuntimeError as error:  # how torch tells that memory ran out, on any device
        raise ValueError(f"no memory for {num_blocks} KV blocks on {config.device}: {_first_line(error)}") from error
    if ranks.shard.size > 1:
        runner = _rank_runner(model, kv_cache, max_model_len, config, send, timeline)
    else:
        runner = _runner(model, kv_cache, max_model_len, config, timeline)
    if config.features is not None:
        runner.tap_features(make_feature_tap(config.features, model_config, kv_cache, dtype))
    return runner


def _runner(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, config: EngineConfig, timeline: Timeline
) -> ModelRunner:
    if model.embedding.device.type == "cuda" and config.cuda_graphs:
        from slipstream.engine.graph_runner import make_graph_runner  # Triton is for GPUs only

        return make_graph_runner(model, kv_cache, max_model_len, config, timeline)
    return ModelRunner(model, kv_cache, max_model_len, timeline=timeline)


def _rank_runner(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, config: EngineConfig, send: SendStep, timeline: Timeline
) -> ModelRunner:
    if model.embedding.device.type == "cuda" and config.cuda_graphs:
        from slipstream.engine.rank_graph_runner import make_rank_graph_runner  # Triton is for GPUs only

        return make_rank_graph_runner(model, kv_cache, max_model_len, config, send, timeline)
    return RankRunner(model, kv_cache, max_model_len, send=send, timeline=timeline)


def _load(
    config: EngineConfig, dtype: torch.dtype, device: torch.device, max_model_len: int, ranks: Ranks
) -> LlamaModel:
    """Who widens loads the small model whole: each rank makes its part of the large one from that."""
    target, loaded_by = config.target_model, ALONE if config.widen else ranks
    model = load_model(config.model, dtype, device, max_model_len, target=target, ranks=loaded_by)
    return widen(model, SHAPES[config.widen], ranks) if config.widen else model


def _device(config: EngineConfig) -> torch.device:
    try:
        device = torch.device(config.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # an AssertionError: torch was built without CUDA
        raise ValueError(f"device is {config.device!r}, which is not to be had here: {_first_line(error)}") from error
    return device


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _dtype(config: EngineConfig) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, config.dtype)
    return dtype


def _max_model_len(config: EngineConfig, model: ModelConfig) -> int:
    if config.max_model_len > model.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {config.max_model_len}, but {config.model} has {model.max_position_embeddings} positions"
        )
    return config.max_model_len or model.max_position_embeddings


def _num_kv_blocks(config: EngineConfig, model: ModelConfig, max_model_len: int) -> int:
    """What was asked for, else what fits in the memory, at most what full sequences could ever use."""
    blocks_per_sequence = -(-max_model_len // config.block_size)
    block_bytes = bytes_per_block(model, _dtype(config), config.block_size)
    if config.features is not None:
        block_bytes += feature_bytes(config.features, config.block_size)
    fitting = min(config.kv_memory_bytes // block_bytes, config.max_num_seqs * blocks_per_sequence)
    num_blocks = config.num_kv_blocks or fitting
    if num_blocks < 1:
        raise ValueError(
            f"kv_memory_bytes is {config.kv_memory_bytes}; one block of {config.block_size} tokens needs {block_bytes}"
        )
    return num_blocks
