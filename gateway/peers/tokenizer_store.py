"""The tokenizers of all verifiers, fetched over gRPC and kept by content. Knows files and hashes; no sequence."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from slipstream.errors import CheckpointError, InvalidRequest
from slipstream.text.chat_template import ChatTemplate
from slipstream.text.tokenizer import Tokenizer, content_hash
from slipstream.wire.v1 import verifier_pb2, verifier_pb2_grpc


@dataclass(frozen=True, slots=True)
class TextTools:
    """What turns a model's text into token ids and back."""

    tokenizer: Tokenizer
    template: ChatTemplate | InvalidRequest  # or why chats cannot be rendered


class TokenizerStore:
    def __init__(self) -> None:
        self._by_content: dict[str, TextTools] = {}
        self._content_of: dict[str, str] = {}  # verifier's address -> content hash

    def of(self, address: str) -> TextTools:
        """Of a verifier that was fetched from."""
        return self._by_content[self._content_of[address]]

    async def fetch(self, address: str, stub: verifier_pb2_grpc.VerifierStub) -> None:
        """Asks the verifier, and loads files only if their content is new."""
        request = verifier_pb2.GetTokenizerRequest(known_hash=self._content_of.get(address, ""))
        files: dict[str, bytearray] = defaultdict(bytearray)
        announced = ""
        async for chunk in stub.GetTokenizer(request):  # type: ignore[attr-defined]
            files[chunk.file_name] += chunk.data
            announced = chunk.content_hash
        if files:
            await self._add(address, announced, {name: bytes(data) for name, data in files.items()})

    async def _add(self, address: str, announced: str, files: dict[str, bytes]) -> None:
        if (found := content_hash(files)) != announced:
            raise CheckpointError(f"the tokenizer files of {address} arrived damaged: {found}, announced {announced}")
        if found not in self._by_content:
            self._by_content[found] = await asyncio.to_thread(_load, files)  # large ones take a second
        self._content_of[address] = found


def _load(files: dict[str, bytes]) -> TextTools:
    tokenizer = Tokenizer.from_files(files)
    try:
        return TextTools(tokenizer, ChatTemplate.from_tokenizer(tokenizer))
    except InvalidRequest as error:
        return TextTools(tokenizer, error)
