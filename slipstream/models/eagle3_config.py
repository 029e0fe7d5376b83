"""What an EAGLE-3 head looks like, read from and written to its config.json. Knows no tensors and no files.

The keys are those of `LlamaForCausalLMEagle3`, as other servers load it; docs/training.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from slipstream.models.config import ModelConfig

ARCHITECTURE: Final = "LlamaForCausalLMEagle3"
NUM_TAPS: Final = 3


def default_layer_ids(num_target_layers: int) -> tuple[int, ...]:
    """The target's layers whose *incoming* hidden states make a feature: one low, one in the middle, one high."""
    return (2, num_target_layers // 2, num_target_layers - 3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Eagle3Config:
    """Raises ValueError naming the entry."""

    layer: ModelConfig  # of the head's one decoder layer; its vocab_size is the target's
    draft_vocab_size: int  # rows of the logits
    target_hidden_size: int
    norm_before_residual: bool = False  # the residual stream starts from the normalised feature
    use_aux_hidden_state: bool = True  # features are made of three hidden states; else the last one is the feature
    layer_ids: tuple[int, ...] = ()  # of the target, whose incoming hidden states are tapped; empty = the usual ones

    def __post_init__(self) -> None:
        if self.layer.num_layers != 1:
            raise ValueError(f"num_hidden_layers is {self.layer.num_layers}; an EAGLE-3 head has 1")
        if self.layer.qkv_bias or self.layer.mlp_bias:
            raise ValueError("attention_bias or mlp_bias is set; an EAGLE-3 head has no biases")
        if not 0 < self.draft_vocab_size <= self.layer.vocab_size:
            raise ValueError(
                f"draft_vocab_size is {self.draft_vocab_size}; it must be in 1..{self.layer.vocab_size}, the vocab_size"
            )
        if self.target_hidden_size < 1:
            raise ValueError(f"target_hidden_size is {self.target_hidden_size}; it must be >= 1")
        if self.layer_ids and (len(self.layer_ids) != NUM_TAPS or min(self.layer_ids) < 0):
            raise ValueError(
                f"eagle_aux_hidden_state_layer_ids is {list(self.layer_ids)}; it must name {NUM_TAPS} layers"
            )

    @property
    def hidden_size(self) -> int:
        return self.layer.hidden_size

    @property
    def projected_size(self) -> int:
        """Columns of `fc`: what the target's states of one token are together."""
        return self.target_hidden_size * (NUM_TAPS if self.use_aux_hidden_state else 1)

    def tapped_layers(self, num_target_layers: int) -> tuple[int, ...]:
        """The layers whose incoming states are wanted; `num_target_layers` itself stands for the last hidden state."""
        if not self.use_aux_hidden_state:
            return (num_target_layers,)
        layer_ids = self.layer_ids or default_layer_ids(num_target_layers)
        if not all(0 <= layer < num_target_layers for layer in layer_ids):
            last = num_target_layers - 1
            raise ValueError(f"eagle_aux_hidden_state_layer_ids is {list(layer_ids)}; the target has layers 0..{last}")
        return layer_ids

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> Eagle3Config:
        if ARCHITECTURE not in config.get("architectures", ()):
            raise ValueError(f"architectures is {config.get('architectures')}; an EAGLE-3 head's is [{ARCHITECTURE!r}]")
        layer = ModelConfig.from_hf({"model_type": "llama", **config, "tie_word_embeddings": False})
        eagle = config.get("eagle_config") or {}
        if not isinstance(eagle, Mapping):
            raise ValueError(f"eagle_config is {eagle!r}; it must be an object")
        return cls(
            layer=layer,
            draft_vocab_size=int(config.get("draft_vocab_size") or layer.vocab_size),
            target_hidden_size=int(config.get("target_hidden_size") or layer.hidden_size),
            norm_before_residual=bool(config.get("norm_before_residual", False)),
            use_aux_hidden_state=bool(eagle.get("use_aux_hidden_state", True)),
            layer_ids=tuple(int(layer_id) for layer_id in eagle.get("eagle_aux_hidden_state_layer_ids") or ()),
        )

    def to_hf(self) -> dict[str, Any]:
        """Entries of config.json."""
        layer = self.layer
        return {
            "architectures": [ARCHITECTURE],
            "model_type": layer.model_type,
            "vocab_size": layer.vocab_size,
            "draft_vocab_size": self.draft_vocab_size,
            "hidden_size": layer.hidden_size,
            "target_hidden_size": self.target_hidden_size,
            "intermediate_size": layer.intermediate_size,
            "num_hidden_layers": 1,
            "num_attention_heads": layer.num_heads,
            "num_key_value_heads": layer.num_kv_heads,
            "head_dim": layer.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": layer.rms_norm_eps,
            "max_position_embeddings": layer.max_position_embeddings,
            "bos_token_id": layer.bos_token_id,
            "eos_token_id": list(layer.eos_token_ids),
            "tie_word_embeddings": False,
            "norm_before_residual": self.norm_before_residual,
            "eagle_config": {
                "use_aux_hidden_state": self.use_aux_hidden_state,
                "eagle_aux_hidden_state_layer_ids": list(self.layer_ids),
            },
            **_rope_entries(layer),
        }


def _rope_entries(layer: ModelConfig) -> dict[str, Any]:
    rope = layer.rope
    if rope.kind == "default":
        return {"rope_theta": rope.theta}
    scaling = {
        "rope_type": rope.kind,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_max_position,
    }
    return {"rope_theta": rope.theta, "rope_scaling": scaling}
