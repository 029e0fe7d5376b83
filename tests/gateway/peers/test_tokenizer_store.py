"""Tokenizers over gRPC: in chunks, checked, once per content."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.peers.tokenizer_store import TokenizerStore
from slipstream.errors import CheckpointError, InvalidRequest
from slipstream.text.chat_template import ChatTemplate
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import verifier_pb2_grpc
from tests.gateway.fakes import TOKENIZER, FakeVerifier
from tests.text.tiny_tokenizers import byte_level


@pytest.fixture
async def verifier() -> AsyncIterator[FakeVerifier]:
    fake = FakeVerifier([])
    await fake.start()
    yield fake
    await fake.die()


async def fetch(store: TokenizerStore, verifier: FakeVerifier) -> None:
    async with open_channel(verifier.address) as channel:
        await store.fetch("here", verifier_pb2_grpc.VerifierStub(channel))


async def test_the_files_arrive_whole_and_are_asked_for_by_content_afterwards(verifier: FakeVerifier) -> None:
    store = TokenizerStore()
    for _ in range(2):
        await fetch(store, verifier)
    assert store.of("here").tokenizer.files == TOKENIZER.files
    assert verifier.tokenizer_requests == ["", TOKENIZER.content_hash]


async def test_another_tokenizer_replaces_the_first(verifier: FakeVerifier) -> None:
    store = TokenizerStore()
    await fetch(store, verifier)
    verifier.tokenizer = byte_level(special="<|new|>", template="{{ messages[0].content }}")
    await fetch(store, verifier)
    assert store.of("here").tokenizer.vocabulary_hash == verifier.tokenizer.vocabulary_hash
    assert isinstance(store.of("here").template, ChatTemplate)


async def test_a_model_without_a_chat_template_can_still_be_used(verifier: FakeVerifier) -> None:
    store = TokenizerStore()
    await fetch(store, verifier)
    assert isinstance(store.of("here").template, InvalidRequest)


async def test_damaged_files_are_refused(verifier: FakeVerifier) -> None:
    verifier.tokenizer = byte_level()
    _ = verifier.tokenizer.content_hash
    verifier.tokenizer.files["tokenizer_config.json"] = b"{ }"
    with pytest.raises(CheckpointError, match="the tokenizer files of here arrived damaged"):
        await fetch(TokenizerStore(), verifier)
