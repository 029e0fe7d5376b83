"""A drafter put together from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_svc.config import DrafterConfig
from drafter_svc.drafter import Opened
from drafter_svc.service import make_drafter
from slipstream.config import EngineConfig
from slipstream.errors import CheckpointError
from slipstream.text.tokenizer import Tokenizer
from tests.drafter_svc.scripted import drafts_in, request
from tests.tiny_models import make_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "tiny", vocab_size=320)


def config(model: Path) -> DrafterConfig:
    return DrafterConfig(engine=EngineConfig(model=model, dtype="float32", num_kv_blocks=32))


def test_it_tells_what_it_serves(checkpoint: Path) -> None:
    info = make_drafter(config(checkpoint)).info()
    assert (info.name, info.vocab_size, info.kv_blocks_total, info.proposers) == ("tiny", 320, 32, ("draft_model",))
    assert info.vocabulary_hash == Tokenizer.from_folder(checkpoint).vocabulary_hash
    assert info.version


def test_it_drafts_with_the_checkpoint(checkpoint: Path) -> None:
    drafter = make_drafter(config(checkpoint))
    drafter.handle(Opened(1, request(vocabulary_hash=drafter.info().vocabulary_hash)))
    said = []
    while drafter.next_wake() is not None:
        said += drafter.step() or []
    assert len(drafts_in(said)) == 5


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        make_drafter(config(tmp_path))
