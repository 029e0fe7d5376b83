"""Makes tiny random Llama-family checkpoints and tokenizers for every test. Knows the file formats, not our code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
EOS_TOKEN_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def make_checkpoint(
    path: Path,
    *,
    vocab_size: int = 320,
    layers: int = 2,
    hidden: int = 32,
    seed: int = 0,
    logit_std: float = 2.0,
    **config: Any,
) -> Path:
    """Writes a Hugging Face folder of fp32 weights and returns it. `config` overrides entries of config.json.

    Tokens 0, 1, 2 are special (2 ends the output); each further one is a byte, readable ones first. `logit_std` is
    about the standard deviation of the logits over the vocabulary: 0.5 is nearly flat, 5 is nearly certain.
    """
    full = _config(vocab_size, layers, hidden) | config
    full.setdefault("head_dim", full["hidden_size"] // full["num_attention_heads"])
    full["architectures"] = [ARCHITECTURES[full["model_type"]]]
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(full, indent=2))
    (path / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": EOS_TOKEN_ID}))
    save_file(random_weights(full, seed, logit_std), path / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(path, vocab_size)
    return path


def make_similar_checkpoint(source: Path, path: Path, *, noise: float = 0.3, seed: int = 1) -> Path:
    """The checkpoint `source` with relative noise on every matrix: a draft model that is often, not always, right."""
    generator = torch.Generator().manual_seed(seed)
    weights = load_file(source / "model.safetensors")
    for name, weight in weights.items():
        if weight.dim() == 2:
            weights[name] = weight + noise * weight.std() * torch.randn(weight.shape, generator=generator)
    path.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix == ".json":
            (path / file.name).write_bytes(file.read_bytes())
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def random_weights(config: dict[str, Any], seed: int, logit_std: float = 2.0) -> dict[str, torch.Tensor]:
    """Tensors by their Hugging Face names, scaled so that every layer matters."""
    generator = torch.Generator().manual_seed(seed)
    hidden, vocab = config["hidden_size"], config["vocab_size"]

    def matrix(rows: int, columns: int, std: float | None = None) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (std or 1 / math.sqrt(columns))

    def norm(size: int) -> torch.Tensor:
        return 1 + 0.1 * torch.randn(size, generator=generator)

    tied = config["tie_word_embeddings"]
    weights = {"model.embed_tokens.weight": matrix(vocab, hidden, logit_std / math.sqrt(hidden) if tied else 1.0)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in _layer_shapes(config).items():
            weights[f"model.layers.{layer}.{name}"] = matrix(*shape) if len(shape) == 2 else norm(*shape)
    weights["model.norm.weight"] = norm(hidden)
    if not tied:
        weights["lm_head.weight"] = matrix(vocab, hidden, logit_std / math.sqrt(hidden))
    return weights


def write_tokenizer(path: Path, vocab_size: int) -> None:
    """A byte-level tokenizer without merges; entries past the 256 bytes are words that no text encodes to."""
    alphabet = sorted(ByteLevel.alphabet(), key=lambda char: (not char.isascii(), not char.isalpha(), char))
    words = [*SPECIAL_TOKENS, *alphabet, *(f"<extra_{i}>" for i in range(vocab_size))][:vocab_size]
    tokenizer = Tokenizer(BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.save(str(path / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[1],
        "eos_token": SPECIAL_TOKENS[EOS_TOKEN_ID],
        "chat_template": CHAT_TEMPLATE,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2))


def _config(vocab_size: int, layers: int, hidden: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": EOS_TOKEN_ID,
    }


def _layer_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config["attention_bias"] or config["model_type"] == "qwen2":
        shapes |= {f"self_attn.{name}_proj.bias": (size,) for name, size in (("q", queries), ("k", keys), ("v", keys))}
    if config["attention_bias"]:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if config["mlp_bias"]:
        shapes |= {"mlp.gate_proj.bias": (inner,), "mlp.up_proj.bias": (inner,), "mlp.down_proj.bias": (hidden,)}
    if config["model_type"] == "qwen3":
        shapes |= {"self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)}
    return shapes
