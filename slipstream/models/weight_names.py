"""Which rows of which of our parameters a Hugging Face tensor fills. Knows names and shapes; no files, no values."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.models.config import ModelConfig

# Entries that some checkpoints carry and nothing needs: recomputed, or a copy of a tied embedding.
IGNORED_SUFFIXES = ("rotary_emb.inv_freq", "attention.bias", "masked_bias")


@dataclass(frozen=True, slots=True)
class Slot:
    """Rows `start` to `start + shape[0]` of our parameter `parameter`."""

    parameter: str
    shape: tuple[int, ...]
    start: int = 0


def weight_slots(config: ModelConfig) -> dict[str, Slot]:
    """Every tensor a checkpoint of this model must have, by its Hugging Face name."""
    embedding = (config.vocab_size, config.hidden_size)
    slots = {
        "model.embed_tokens.weight": Slot("embedding", embedding),
        "model.norm.weight": Slot("norm.weight", (config.hidden_size,)),
    }
    if not config.tie_word_embeddings:
        slots["lm_head.weight"] = Slot("head", embedding)
    for layer in range(config.num_layers):
        for name, slot in _layer_slots(config).items():
            slots[f"model.layers.{layer}.{name}"] = Slot(f"layers.{layer}.{slot.parameter}", slot.shape, slot.start)
    return slots


def _layer_slots(config: ModelConfig) -> dict[str, Slot]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    slots = {
        "input_layernorm.weight": Slot("input_norm.weight", (hidden,)),
        "post_attention_layernorm.weight": Slot("mlp_norm.weight", (hidden,)),
        **_stacked("self_attn", "attention.qkv_proj", hidden, {"q_proj": queries, "k_proj": keys, "v_proj": keys}),
        **_stacked("self_attn", "attention.o_proj", queries, {"o_proj": hidden}),
        **_stacked("mlp", "mlp.gate_up_proj", hidden, {"gate_proj": inner, "up_proj": inner}),
        **_stacked("mlp", "mlp.down_proj", inner, {"down_proj": hidden}),
    }
    biased = {
        "self_attn.o_proj.bias": config.output_bias,
        **{f"self_attn.{name}.bias": config.qkv_bias for name in ("q_proj", "k_proj", "v_proj")},
        **{f"mlp.{name}.bias": config.mlp_bias for name in ("gate_proj", "up_proj", "down_proj")},
    }
    slots = {name: slot for name, slot in slots.items() if biased.get(name, True)}
    if config.qk_norm:
        for norm in ("q_norm", "k_norm"):
            slots[f"self_attn.{norm}.weight"] = Slot(f"attention.{norm}.weight", (config.head_dim,))
    return slots


def _stacked(block: str, parameter: str, columns: int, parts: dict[str, int]) -> dict[str, Slot]:
    """Weights and biases of several matrices that we keep as one, `parts` (name: rows) below each other."""
    slots, start = {}, 0
    for name, rows in parts.items():
        slots[f"{block}.{name}.weight"] = Slot(f"{parameter}.weight", (rows, columns), start)
        slots[f"{block}.{name}.bias"] = Slot(f"{parameter}.bias", (rows,), start)
        start += rows
    return slots
