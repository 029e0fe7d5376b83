"""What a Llama-family model looks like, read from its config.json. Knows no tensors and no files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slipstream.errors import quoted

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_KINDS = ("default", "linear", "llama3")
MAX_SIZE: Final = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """Rotary position embedding. `factor` and the rest are used by the kinds that need them."""

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192

    def __post_init__(self) -> None:
        if self.kind not in ROPE_KINDS:
            raise ValueError(f"rope scaling {self.kind!r} is not supported; it must be one of {', '.join(ROPE_KINDS)}")
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"rope: {name} is {getattr(self, name)}; it must be > 0")
        if self.low_freq_factor >= self.high_freq_factor:
            high = self.high_freq_factor
            raise ValueError(f"rope: low_freq_factor is {self.low_freq_factor}; it must be < {high}, high_freq_factor")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> RopeConfig:
        """Reads both styles: `rope_parameters` (transformers 5) and `rope_theta` + `rope_scaling` (before)."""
        values = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        return cls(
            theta=float(values.get("rope_theta") or config.get("rope_theta") or 10000.0),
            kind=values.get("rope_type") or values.get("type") or "default",
            factor=float(values.get("factor", 1.0)),
            low_freq_factor=float(values.get("low_freq_factor", 1.0)),
            high_freq_factor=float(values.get("high_freq_factor", 4.0)),
            original_max_position=int(values.get("original_max_position_embeddings", 8192)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Shapes and switches of one model; everything the layers need to be built."""

    model_type: str
    vocab_size: int  # rows of the embedding and the logits, padding included
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig = field(default_factory=RopeConfig)
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output projection
    mlp_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False
    sliding_window: int = 0  # 0 = every token sees all before it
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.model_type not in MODEL_TYPES:
            raise ValueError(f"model_type is {self.model_type!r}; it must be one of {', '.join(MODEL_TYPES)}")
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads")
        for name in (*sizes, "head_dim", "max_position_embeddings"):
            if not 1 <= getattr(self, name) <= MAX_SIZE:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be in 1..{MAX_SIZE}")
        if not 0 < self.rms_norm_eps < 1:
            raise ValueError(f"rms_norm_eps is {self.rms_norm_eps}; it must be in (0, 1)")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}; it must be a multiple of num_kv_heads {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embedding needs an even one")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
        """Reads config.json, and generation_config.json for the end tokens if there is one.

        Raises ValueError naming the entry that is missing or of an unsupported value.
        """
        model_type = str(config.get("model_type", ""))
        try:
            heads = int(config["num_attention_heads"])
            hidden = int(config["hidden_size"])
            return cls(
                model_type=model_type,
                vocab_size=int(config["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(config["intermediate_size"]),
                num_layers=int(config["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=int(config.get("num_key_value_heads") or heads),
                head_dim=int(config.get("head_dim") or (128 if model_type == "qwen3" else hidden // heads)),
                max_position_embeddings=int(config.get("max_position_embeddings", 2048)),
                rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
                rope=RopeConfig.from_hf(config),
                bos_token_id=config.get("bos_token_id"),
                eos_token_ids=_end_tokens(config, generation or {}),
                **_switches(model_type, config),
            )
        except KeyError as error:
            raise ValueError(f"entry {error} is missing") from error


def _switches(model_type: str, config: Mapping[str, Any]) -> dict[str, Any]:
    if (act := config.get("hidden_act", "silu")) != "silu":
        raise ValueError(f"hidden_act is {act!r}; only 'silu' is supported")
    bias = bool(config.get("attention_bias", False))
    return {
        "qkv_bias": bias or model_type == "qwen2",
        "output_bias": bias,
        "mlp_bias": bool(config.get("mlp_bias", False)),
        "qk_norm": model_type == "qwen3",
        "tie_word_embeddings": bool(config.get("tie_word_embeddings", False)),
        "sliding_window": _sliding_window(model_type, config),
    }


def _sliding_window(model_type: str, config: Mapping[str, Any]) -> int:
    """Qwen configs carry a window that is off unless `use_sliding_window` is set; Mistral's is on when given."""
    used = config.get("use_sliding_window", not model_type.startswith("qwen"))
    return int(config.get("sliding_window") or 0) if used and model_type != "llama" else 0


def _end_tokens(config: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    value = generation.get("eos_token_id", config.get("eos_token_id"))
    if value is None:
        return ()
    ids = tuple(value) if isinstance(value, list) else (value,)
    if not all(type(token_id) is int and token_id >= 0 for token_id in ids):
        raise ValueError(f"eos_token_id is {quoted(value)}; it must be a token id or a list of them")
    return ids
