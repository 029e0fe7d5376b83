"""Small tokenizers of the two common kinds, for the tests of everything that handles text."""

from __future__ import annotations

import json

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from slipstream.text.tokenizer import Tokenizer


def byte_level(special: str = "<|end|>", config: dict[str, object] | None = None, template: str = "") -> Tokenizer:
    """256 byte tokens and one special token (id 256); no merges, so every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([special])
    return _tokenizer(tokenizer, config, template)


def metaspace() -> Tokenizer:
    """Sentencepiece-like: a mark for spaces, byte tokens for the rest, BOS before every text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"helowrd"]
    tokenizer = tokenizers.Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _tokenizer(tokenizer, None, "")


def _tokenizer(tokenizer: tokenizers.Tokenizer, config: dict[str, object] | None, template: str) -> Tokenizer:
    files = {"tokenizer.json": tokenizer.to_str().encode(), "tokenizer_config.json": json.dumps(config or {}).encode()}
    return Tokenizer.from_files(files | ({"chat_template.jinja": template.encode()} if template else {}))
