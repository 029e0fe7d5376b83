"""Text to token ids and back, by the model's own tokenizer files. Knows no model, no network and no template."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from slipstream.errors import CheckpointError

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
FILE_NAMES = (TOKENIZER_FILE, CONFIG_FILE, TEMPLATE_FILE)  # what is shipped to whoever needs the same tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """A Hugging Face fast tokenizer, its configuration and its vocabulary's fingerprint."""

    def __init__(self, files: Mapping[str, bytes], origin: str) -> None:
        self.files = dict(files)
        self._tokenizer = _parse_tokenizer(self.files, origin)
        self.config = _parse_config(self.files, origin)
        self._special_ids = {
            token_id for token_id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        }
        decoder = json.loads(self.files[TOKENIZER_FILE]).get("decoder")
        decoder_kinds = _kinds(decoder)
        self._byte_level = "ByteLevel" in decoder_kinds
        self._byte_fallback = "ByteFallback" in decoder_kinds
        self._bytes_by_id: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        paths = {name: folder / name for name in FILE_NAMES}
        return cls({name: path.read_bytes() for name, path in paths.items() if path.is_file()}, str(folder))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Tokenizer:
        return cls(files, "the files received")

    @cached_property
    def vocabulary_hash(self) -> str:
        """Hex SHA-256 of the sorted (token, id) entries, added tokens included; padding of embeddings plays no part."""
        entries = sorted(self._tokenizer.get_vocab(with_added_tokens=True).items())
        return hashlib.sha256(json.dumps(entries, separators=(",", ":")).encode()).hexdigest()

    @cached_property
    def content_hash(self) -> str:
        return content_hash(self.files)

    @property
    def vocab_size(self) -> int:
        """Entries, added tokens included; a model may have more rows."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """`add_special_tokens` adds what the tokenizer itself prescribes around a text (such as BOS), if anything."""
        # As a batch of one: `encode` keeps the interpreter to itself, for seconds if the text is long.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoding.ids)

    def token(self, token_id: int) -> str:
        """The vocabulary's entry, empty for an id that has none."""
        return self._tokenizer.id_to_token(token_id) or ""

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes that a token adds to text that went before; may hold a part of a character. Special: none."""
        known = self._bytes_by_id.get(token_id)
        if known is None:
            known = self._bytes_by_id[token_id] = self._compute_bytes(token_id)
        return known

    def _compute_bytes(self, token_id: int) -> bytes:
        token = self.token(token_id)
        if not token or token_id in self._special_ids:
            return b""
        if self._byte_level:
            return _byte_level_bytes(token)
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return self._text_after_itself(token_id).encode()

    def _text_after_itself(self, token_id: int) -> str:
        # Decoders treat the first token specially (a space is stripped or left out), so give it a predecessor.
        alone = self._tokenizer.decode([token_id])
        return str(self._tokenizer.decode([token_id, token_id])[len(alone) :])


def content_hash(files: Mapping[str, bytes]) -> str:
    """Hex SHA-256 over names and contents of all files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def _parse_tokenizer(files: Mapping[str, bytes], origin: str) -> tokenizers.Tokenizer:
    if TOKENIZER_FILE not in files:
        raise CheckpointError(f"{TOKENIZER_FILE} is missing in {origin}")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(files[TOKENIZER_FILE].decode())
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{TOKENIZER_FILE} in {origin} cannot be read: {error}") from error
    tokenizer.no_truncation()  # a file may carry settings left over from training
    tokenizer.no_padding()
    return tokenizer


def _parse_config(files: Mapping[str, bytes], origin: str) -> dict[str, Any]:
    try:
        config = json.loads(files.get(CONFIG_FILE, b"{}"))
    except ValueError as error:
        raise CheckpointError(f"{CONFIG_FILE} in {origin} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{CONFIG_FILE} in {origin} must hold an object, not {type(config).__name__}")
    return config


def _kinds(component: Any) -> set[str]:
    """The type names of a tokenizer component and of all that it is made of."""
    if not isinstance(component, dict):
        return set()
    parts = component.get("decoders", [])
    return {component.get("type", "")}.union(*(_kinds(part) for part in parts))


def _byte_level_characters() -> dict[str, int]:
    """Byte-level vocabularies write each byte as one printable character: itself if printable, else from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_level_characters()


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:  # an added token is written as it is
        return token.encode()
