"""A small vocabulary of bytes, and the compiler for it."""

from __future__ import annotations

import pytest

from slipstream.grammar.compiler import GrammarCompiler
from slipstream.text.tokenizer import Tokenizer
from tests.tiny_models import EOS_TOKEN_ID, write_tokenizer

VOCAB = 260


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, VOCAB)
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, VOCAB, [EOS_TOKEN_ID])


@pytest.fixture(scope="module")
def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    return [tokenizer.token_bytes(token_id) for token_id in range(VOCAB)]
