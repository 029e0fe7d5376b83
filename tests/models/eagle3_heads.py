"""Writes random EAGLE-3 heads as folders, from the format's description alone. Knows none of our code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 48, 4, 2, 8, 320


def head_config(draft_vocab: int = VOCAB, **entries: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "draft_vocab_size": draft_vocab,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        **entries,
    }


def head_weights(
    draft_ids: list[int] | None = None, *, target_hidden: int = HIDDEN, aux: bool = True, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Every tensor a head may have; `draft_ids` are the tokens of a reduced vocabulary, ascending."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    def norm() -> torch.Tensor:
        return 1 + 0.1 * torch.randn(HIDDEN, generator=generator)

    weights = {
        "midlayer.hidden_norm.weight": norm(),
        "midlayer.input_layernorm.weight": norm(),
        "midlayer.post_attention_layernorm.weight": norm(),
        "midlayer.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
        "midlayer.mlp.gate_proj.weight": matrix(INNER, HIDDEN),
        "midlayer.mlp.up_proj.weight": matrix(INNER, HIDDEN),
        "midlayer.mlp.down_proj.weight": matrix(HIDDEN, INNER),
        "norm.weight": norm(),
        "lm_head.weight": 3 * matrix(len(draft_ids) if draft_ids else VOCAB, HIDDEN),
        "embed_tokens.weight": matrix(VOCAB, HIDDEN) * math.sqrt(HIDDEN),
    }
    if aux:
        weights["fc.weight"] = matrix(HIDDEN, 3 * target_hidden)
    if draft_ids:
        weights["d2t"] = torch.tensor([token - i for i, token in enumerate(draft_ids)])
        weights["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
        weights["t2d"][draft_ids] = True
    return weights


def write_head(path: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(weights, path / "model.safetensors")
    return path


def make_head(path: Path, draft_ids: list[int] | None = None, *, seed: int = 0, **entries: Any) -> Path:
    return write_head(
        path, head_config(len(draft_ids) if draft_ids else VOCAB, **entries), head_weights(draft_ids, seed=seed)
    )
