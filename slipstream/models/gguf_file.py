"""Reads a GGUF file as if it were a Hugging Face folder. Knows GGUF's names and layouts; nothing of tokenizers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch

from slipstream.errors import CheckpointError
from slipstream.layers.rotary import inverse_frequencies, llama3_factors
from slipstream.models.config import RopeConfig

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
PERMUTED = ("llama",)  # architectures whose query and key rows are stored in another rotary order
ROPE_FACTORS = "rope_freqs.weight"

_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFCheckpoint:
    """One GGUF file; every tensor is dequantised to fp32 as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _open(path)
        self.architecture = str(self._field("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise CheckpointError(
                f"{path}: architecture {self.architecture!r} is not supported; it must be one of {known}"
            )

    @property
    def tokenizer_kind(self) -> str:
        """How text is split before merging, by GGUF's name for it."""
        return str(self._field("tokenizer.ggml.pre", "default"))

    def config(self) -> dict[str, Any]:
        heads, hidden = int(self._hyper("attention.head_count")), int(self._hyper("embedding_length"))
        head_dim = int(self._hyper("attention.key_length", hidden // heads))
        if (rotated := int(self._hyper("rope.dimension_count", head_dim))) != head_dim:
            raise CheckpointError(
                f"{self.path}: rotary embedding of {rotated} of {head_dim} dimensions is not supported"
            )
        return {
            "architectures": [ARCHITECTURES[self.architecture]],
            "model_type": self.architecture,
            "vocab_size": int(self._tensor_shape("token_embd.weight")[0]),
            "hidden_size": hidden,
            "intermediate_size": int(self._hyper("feed_forward_length")),
            "num_hidden_layers": int(self._hyper("block_count")),
            "num_attention_heads": heads,
            "num_key_value_heads": int(self._hyper("attention.head_count_kv", heads)),
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": int(self._hyper("context_length")),
            # Stored as fp32; six digits give back what its author wrote, e.g. 1e-05.
            "rms_norm_eps": float(f"{self._hyper('attention.layer_norm_rms_epsilon'):.6g}"),
            "sliding_window": int(self._hyper("attention.sliding_window", 0)) or None,
            "tie_word_embeddings": not self._has("output.weight"),
            "attention_bias": self.architecture == "llama" and self._has("blk.0.attn_q.bias"),
            "mlp_bias": self._has("blk.0.ffn_down.bias"),
            **self._rope(head_dim),
            **self.generation_config(),
        }

    def generation_config(self) -> dict[str, Any]:
        """Begin, end and padding tokens; several end tokens where the file names them."""
        ends = [self._field(f"tokenizer.ggml.{name}_token_id", None) for name in ("eos", "eot", "eom")]
        ids = list(dict.fromkeys(int(end) for end in ends if end is not None))
        entries = {
            "bos_token_id": self._field("tokenizer.ggml.bos_token_id", None),
            "eos_token_id": (ids if len(ids) > 1 else ids[0]) if ids else None,
            "pad_token_id": self._field("tokenizer.ggml.padding_token_id", None),
        }
        return {name: value for name, value in entries.items() if value is not None}

    def tensors(self) -> Iterator[tuple[str, Path, torch.Tensor]]:
        for tensor in self._reader.tensors:
            if tensor.name != ROPE_FACTORS:  # part of the configuration
                yield hf_name(tensor.name), self.path, torch.from_numpy(self._dequantize(tensor))

    def stored(self) -> Iterator[tuple[str, Path, torch.Tensor]]:
        return self.tensors()

    def _dequantize(self, tensor: gguf.ReaderTensor) -> npt.NDArray[np.float32]:
        try:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError, KeyError) as error:
            kind = getattr(tensor.tensor_type, "name", tensor.tensor_type)
            raise CheckpointError(
                f"{self.path}: tensor {tensor.name} of kind {kind} cannot be read: {error}"
            ) from error
        values = np.require(values, np.float32, ["C", "W"])  # unquantised tensors are views of the file
        if self.architecture in PERMUTED and re.search(r"\.attn_[qk]\.(weight|bias)$", tensor.name):
            which = "head_count_kv" if ".attn_k." in tensor.name else "head_count"
            return unpermute(values, int(self._hyper(f"attention.{which}", self._hyper("attention.head_count"))))
        return values

    def _rope(self, head_dim: int) -> dict[str, Any]:
        entries: dict[str, Any] = {"rope_theta": float(self._hyper("rope.freq_base", 10000.0))}
        kind = str(self._hyper("rope.scaling.type", "none"))
        if self._has(ROPE_FACTORS):
            entries["rope_scaling"] = self._llama3_scaling(entries["rope_theta"], head_dim)
        elif kind != "none":
            entries["rope_scaling"] = {"rope_type": kind, "factor": float(self._hyper("rope.scaling.factor", 1.0))}
        return entries

    def _llama3_scaling(self, theta: float, head_dim: int) -> dict[str, Any]:
        """GGUF stores the factors that Llama 3's rule gives, not the rule: find the rule, and check that it fits."""
        stored = next(tensor for tensor in self._reader.tensors if tensor.name == ROPE_FACTORS)
        factors = torch.from_numpy(self._dequantize(stored)).flatten()
        rope = RopeConfig(theta=theta, kind="llama3", factor=round(float(factors.max()), 3))
        plain = inverse_frequencies(RopeConfig(theta=theta), head_dim)
        if not torch.allclose(llama3_factors(rope, plain), factors, rtol=1e-3):
            raise CheckpointError(f"{self.path}: tensor {ROPE_FACTORS} does not follow Llama 3's rule; unsupported")
        return {
            "rope_type": rope.kind,
            "factor": rope.factor,
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_max_position,
        }

    def _hyper(self, name: str, *default: Any) -> Any:
        return self._field(f"{self.architecture}.{name}", *default)

    def _field(self, name: str, *default: Any) -> Any:
        field = self._reader.fields.get(name)
        if field is not None:
            return field.contents()
        if not default:
            raise CheckpointError(f"{self.path}: metadata entry {name} is missing")
        return default[0]

    def _has(self, tensor_name: str) -> bool:
        return any(tensor.name == tensor_name for tensor in self._reader.tensors)

    def _tensor_shape(self, tensor_name: str) -> tuple[int, ...]:
        for tensor in self._reader.tensors:
            if tensor.name == tensor_name:
                return tuple(int(size) for size in reversed(tensor.shape))  # GGUF counts from the innermost axis
        raise CheckpointError(f"{self.path}: tensor {tensor_name} is missing")


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; an unknown name stays as it is, for the loader to refuse."""
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in _IN_LAYER:
        return name
    return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"


def unpermute(
    values: npt.NDArray[np.float32],  # [num_heads * head_dim, ...]: in each head, the pairs that rotate are neighbours
    num_heads: int,
) -> npt.NDArray[np.float32]:
    """The same rows in our order: the first halves of all of a head's pairs, then the second halves."""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))


def _open(path: Path) -> gguf.GGUFReader:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: is truncated or no GGUF file ({error}); fetch it again") from error
