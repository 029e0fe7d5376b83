"""Writes tiny checkpoints as GGUF files, the way llama.cpp's converter lays them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def write_gguf(folder: Path, file: Path, kind: gguf.GGMLQuantizationType, **extra: Any) -> Path:
    """The tiny checkpoint in `folder` as a GGUF file with matrices of `kind`; `extra` adds fp32 tensors."""
    config = json.loads((folder / "config.json").read_text())
    architecture = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(file, architecture)
    _write_metadata(writer, config)
    _write_vocabulary(writer, folder)
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = _permuted(name, tensor, config) if architecture == "llama" else tensor
        _write_tensor(writer, gguf_name(name), values.numpy(), kind)
    for name, values in extra.items():
        writer.add_tensor(name.replace("/", "."), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def gguf_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, inner = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[inner]}.{suffix}"
    return f"{NAMES[stem]}.{suffix}"


def _permuted(name: str, tensor: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """Row 2i of a head is the first of rotary pair i, row 2i + 1 the second."""
    if ".q_proj." not in name and ".k_proj." not in name:
        return tensor
    rows = []
    for head in tensor.split(config["head_dim"]):
        half = config["head_dim"] // 2
        rows += [row for i in range(half) for row in (head[i], head[half + i])]
    return torch.stack(rows)


def _write_tensor(writer: gguf.GGUFWriter, name: str, values: Any, kind: gguf.GGMLQuantizationType) -> None:
    kind = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def _write_metadata(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])


def _write_vocabulary(writer: gguf.GGUFWriter, folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(np.where(np.isin(np.arange(len(tokens)), list(special)), 3, 1).tolist())
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])
