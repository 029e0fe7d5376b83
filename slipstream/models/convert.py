"""Turns a GGUF file into a Hugging Face folder, once, tokenizer included. Knows both formats; builds no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from transformers import AutoTokenizer

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import WEIGHTS
from slipstream.models.gguf_file import GGUFCheckpoint

TOKENIZER_ENTRIES = ("bos_token", "eos_token", "unk_token", "pad_token", "chat_template")


def convert_gguf(src: Path, dst: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Writes config, weights in `dtype` and tokenizer of the GGUF file `src` into the folder `dst`."""
    checkpoint = GGUFCheckpoint(src)
    config = checkpoint.config() | {"dtype": str(dtype).removeprefix("torch.")}
    dst.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(dtype) for name, _, tensor in checkpoint.tensors()}
    save_file(weights, dst / WEIGHTS, metadata={"format": "pt"})
    (dst / WEIGHTS).chmod(0o644)  # safetensors makes it readable by its owner only
    _write_json(dst / "config.json", config)
    _write_json(dst / "generation_config.json", checkpoint.generation_config())
    _write_tokenizer(checkpoint, dst)


def _write_tokenizer(checkpoint: GGUFCheckpoint, dst: Path) -> None:
    src = checkpoint.path
    try:
        tokenizer = AutoTokenizer.from_pretrained(src.parent, gguf_file=src.name)
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise CheckpointError(f"{src}: its tokenizer cannot be read: {error}") from error
    if checkpoint.tokenizer_kind == "smollm":  # single digits; transformers' reader leaves that out
        tokenizer.backend_tokenizer.pre_tokenizer = PreTokenizers(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        )
    tokenizer.backend_tokenizer.save(str(dst / "tokenizer.json"))
    entries = {name: getattr(tokenizer, name, None) for name in TOKENIZER_ENTRIES}
    _write_json(
        dst / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": checkpoint.config()["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            **{name: value for name, value in entries.items() if value is not None},
        },
    )


def _write_json(file: Path, entries: dict[str, Any]) -> None:
    file.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
