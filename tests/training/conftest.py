"""A tiny target with a chat template, and its frame."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from tests.tiny_models import make_checkpoint


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(
        tmp_path_factory.mktemp("target"), layers=4, tie_word_embeddings=True, max_position_embeddings=2048
    )


@pytest.fixture
def target(target_folder: Path) -> LlamaModel:
    return load_model(target_folder, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="session")
def tokenizer(target_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(target_folder)


@pytest.fixture(scope="session")
def frame(tokenizer: Tokenizer) -> ChatFrame:
    return ChatFrame.of(tokenizer)
