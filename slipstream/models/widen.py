"""Copies a small model into a large shape so that it says the same at the large one's price. Knows weights, no files.

What is measured then costs what a large model costs, while text and acceptance are a real model's. What is added cannot
be seen from what was there: the residual stream's new dimensions stay zero, new heads and inner units are read with
weight zero, new layers add nothing. All other new weights are random, so that no product is cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from slipstream.layers.attention import Attention
from slipstream.layers.mlp import MLP
from slipstream.layers.norm import RMSNorm
from slipstream.models.config import ModelConfig
from slipstream.models.llama import DecoderLayer, LlamaModel
from slipstream.models.placement import place
from slipstream.models.weight_names import layer_slots
from slipstream.parallel.ranks import ALONE, Ranks
from slipstream.parallel.shard import Shard

NOISE = 0.02  # standard deviation of weights that nothing depends on


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The sizes of a Llama that are grown to."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


SHAPES = {
    "8b": Shape(
        hidden_size=4096, intermediate_size=14336, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128
    ),
    "70b": Shape(
        hidden_size=8192, intermediate_size=28672, num_layers=80, num_heads=64, num_kv_heads=8, head_dim=128
    ),
}  # fmt: skip


def widened_config(config: ModelConfig, shape: Shape) -> ModelConfig:
    """The large model's configuration; ValueError if the small one does not fit into it."""
    for name in ("hidden_size", "intermediate_size", "num_layers", "num_kv_heads"):
        if getattr(config, name) > getattr(shape, name):
            raise ValueError(f"cannot widen: {name} is {getattr(config, name)}, the shape has {getattr(shape, name)}")
    if config.num_heads // config.num_kv_heads > shape.num_heads // shape.num_kv_heads:
        raise ValueError(f"cannot widen: {config.num_heads} heads share {config.num_kv_heads} KV heads, too many each")
    if shape.head_dim % config.head_dim:
        raise ValueError(f"cannot widen: head_dim is {config.head_dim}; it must divide {shape.head_dim}")
    if config.qk_norm or config.qkv_bias or config.output_bias or config.mlp_bias:
        raise ValueError("cannot widen: models with biases or with norms of queries and keys are not supported")
    return replace(
        config,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=config.rms_norm_eps * config.hidden_size / shape.hidden_size,
        tie_word_embeddings=False,
    )


@torch.no_grad()
def widen(small: LlamaModel, shape: Shape, ranks: Ranks = ALONE) -> LlamaModel:
    """A model of the shape, on the same device, with the logits of `small`, which is whole; of it this rank's part.

    One whole wide layer at a time is made and cut, so that no rank ever holds more than its part and a layer.
    """
    config = widened_config(small.config, shape)
    with small.embedding.device:
        model = LlamaModel(config, small.dtype, ranks)
        whole_layer = DecoderLayer(config, small.dtype)
    _widen_vocabulary(small, model)
    _widen_norm(small.norm, model.norm)
    for index, layer in enumerate(model.layers):
        source = small.layers[index] if index < len(small.layers) else None
        assert source is None or isinstance(source, DecoderLayer)
        _widen_layer(source, whole_layer, small.config, config)
        _cut_layer(whole_layer, layer, config, ranks.shard)
    return model.eval()


def _widen_vocabulary(small: LlamaModel, model: LlamaModel) -> None:
    """Rows of this rank's tokens; padding beyond them is never read."""
    hidden, tokens = small.config.hidden_size, model.ranks.shard.tokens(model.config)
    head = small.embedding if small.head is None else small.head
    assert model.head is not None
    model.embedding.zero_()[: len(tokens), :hidden] = small.embedding[tokens.start : tokens.stop]
    model.head.normal_(0, NOISE)[: len(tokens), :hidden] = head[tokens.start : tokens.stop]


def _cut_layer(whole: DecoderLayer, part: nn.Module, config: ModelConfig, shard: Shard) -> None:
    """As the loader cuts a checkpoint's tensors."""
    tensors, parameters = dict(whole.named_parameters()), dict(part.named_parameters())
    stored = layer_slots(config, config)
    for name, slot in layer_slots(config, shard.share(config)).items():
        rows = stored[name].start, stored[name].start + slot.shape[0]
        place(parameters[slot.parameter], slot, tensors[slot.parameter][slice(*rows)], shard)


def _widen_layer(source: DecoderLayer | None, target: DecoderLayer, small: ModelConfig, large: ModelConfig) -> None:
    """Without a source: a layer that costs as much as any and adds nothing."""
    for parameter in target.parameters():
        parameter.normal_(0, NOISE)
    target.attention.o_proj.weight.zero_()
    target.mlp.down_proj.weight.zero_()
    if source is not None:
        _widen_norm(source.input_norm, target.input_norm)
        _widen_norm(source.mlp_norm, target.mlp_norm)
        _widen_attention(source.attention, target.attention, small, large)
        _widen_mlp(source.mlp, target.mlp)


def _widen_norm(source: RMSNorm, target: RMSNorm) -> None:
    """The mean square falls by the share of dimensions that are not zero, and its root is what divides."""
    size = len(source.weight)
    target.weight[:size] = source.weight * math.sqrt(size / len(target.weight))
    target.weight[size:] = 1


def _widen_attention(source: Attention, target: Attention, small: ModelConfig, large: ModelConfig) -> None:
    """Heads keep their KV head. A rotary pair goes where the wide head turns as fast; a query's others are zero."""
    hidden = small.hidden_size
    stretch = large.head_dim // small.head_dim
    kv_heads, heads = torch.arange(small.num_kv_heads), torch.arange(small.num_heads)
    sharing = small.num_heads // small.num_kv_heads, large.num_heads // large.num_kv_heads
    heads = heads // sharing[0] * sharing[1] + heads % sharing[0]
    pairs = torch.arange(small.head_dim // 2) * stretch
    rotated, plain = torch.cat((pairs, pairs + large.head_dim // 2)), torch.arange(small.head_dim)
    queries, keys, values = _heads(target.qkv_proj.weight, large)
    small_queries, small_keys, small_values = _heads(source.qkv_proj.weight, small)
    queries[heads] = 0
    queries[heads[:, None], rotated, :hidden] = small_queries * math.sqrt(stretch)  # scores are divided by more
    keys[kv_heads[:, None], rotated, :hidden] = small_keys
    values[kv_heads[:, None], plain, :hidden] = small_values
    columns = (heads[:, None] * large.head_dim + plain).flatten()
    target.o_proj.weight[:hidden, columns] = source.o_proj.weight


def _heads(
    weight: torch.Tensor,  # [(num_heads + 2 * num_kv_heads) * head_dim, hidden]
    config: ModelConfig,
) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values as views, [heads, head_dim, hidden] each."""
    sizes = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    return weight.view(sum(sizes), config.head_dim, -1).split_with_sizes(sizes)


def _widen_mlp(source: MLP, target: MLP) -> None:
    hidden, inner = source.down_proj.weight.shape
    wide_inner = target.down_proj.weight.shape[1]
    for part, start in enumerate((0, wide_inner)):  # gate, up
        rows = source.gate_up_proj.weight[part * inner : (part + 1) * inner]
        target.gate_up_proj.weight[start : start + inner, :hidden] = rows
    target.down_proj.weight[:hidden, :inner] = source.down_proj.weight
