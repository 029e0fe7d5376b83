"""Which rows of which of our parameters a Hugging Face tensor fills. Knows names and shapes; no files, no values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.models.config import ModelConfig

# Entries that some checkpoints carry and nothing needs: recomputed, or a copy of a tied embedding.
IGNORED_SUFFIXES = ("rotary_emb.inv_freq", "attention.bias", "masked_bias")


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a checkpoint's tensor goes: our parameter `parameter`, from row `start` on.

    Where ranks divide the tensor, each takes the next `piece` entries along `axis`, the last one perhaps fewer.
    """

    parameter: str
    shape: tuple[int, ...]  # of the whole tensor
    start: int = 0
    piece: int = 0  # 0: every rank has all of it
    axis: int = 0


def weight_slots(config: ModelConfig, share: ModelConfig | None = None) -> dict[str, Slot]:
    """Every tensor a checkpoint of this model must have, by its Hugging Face name; `share` is what one rank holds."""
    share = share or config
    embedding = (config.vocab_size, config.hidden_size)
    slots = {
        "model.embed_tokens.weight": Slot("embedding", embedding, piece=share.vocab_size),
        "model.norm.weight": Slot("norm.weight", (config.hidden_size,)),
    }
    if not config.tie_word_embeddings:
        slots["lm_head.weight"] = Slot("head", embedding, piece=share.vocab_size)
    for layer in range(config.num_layers):
        for name, slot in layer_slots(config, share).items():
            slots[f"model.layers.{layer}.{name}"] = replace(slot, parameter=f"layers.{layer}.{slot.parameter}")
    return slots


def layer_slots(config: ModelConfig, share: ModelConfig) -> dict[str, Slot]:
    """The tensors of one layer, names and parameters without its number."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    own_queries, own_keys = share.num_heads * share.head_dim, share.num_kv_heads * share.head_dim
    own_inner = share.intermediate_size
    heads = {"q_proj": (queries, own_queries), "k_proj": (keys, own_keys), "v_proj": (keys, own_keys)}
    slots = {
        "input_layernorm.weight": Slot("input_norm.weight", (hidden,)),
        "post_attention_layernorm.weight": Slot("mlp_norm.weight", (hidden,)),
        **_rows("self_attn", "attention.qkv_proj", hidden, heads),
        **_columns("self_attn.o_proj", "attention.o_proj", hidden, queries, own_queries),
        **_rows("mlp", "mlp.gate_up_proj", hidden, {"gate_proj": (inner, own_inner), "up_proj": (inner, own_inner)}),
        **_columns("mlp.down_proj", "mlp.down_proj", hidden, inner, own_inner),
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


def _rows(block: str, parameter: str, columns: int, parts: dict[str, tuple[int, int]]) -> dict[str, Slot]:
    """Weights and biases of several matrices that we keep as one, `parts` (name: rows, a rank's) below each other."""
    slots, start = {}, 0
    for name, (rows, piece) in parts.items():
        slots[f"{block}.{name}.weight"] = Slot(f"{parameter}.weight", (rows, columns), start, piece)
        slots[f"{block}.{name}.bias"] = Slot(f"{parameter}.bias", (rows,), start, piece)
        start += piece
    return slots


def _columns(name: str, parameter: str, rows: int, columns: int, piece: int) -> dict[str, Slot]:
    """A matrix whose ranks' results are summed, so that its inputs are divided; its bias is added afterwards."""
    return {
        f"{name}.weight": Slot(f"{parameter}.weight", (rows, columns), piece=piece, axis=1),
        f"{name}.bias": Slot(f"{parameter}.bias", (rows,)),
    }
