"""A drafter put together from a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drafter_svc.config import AdapterSettings, DrafterConfig
from drafter_svc.events import Opened
from drafter_svc.service import make_drafter
from slipstream.config import EngineConfig
from slipstream.errors import CheckpointError
from slipstream.exchange import AdapterInfo
from slipstream.text.tokenizer import Tokenizer
from tests.drafter_svc.scripted import drafts_in, request
from tests.tiny_adapters import make_adapter
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


def test_it_begins_with_the_adapters_that_it_was_given(checkpoint: Path, tmp_path: Path) -> None:
    legal = make_adapter(checkpoint, tmp_path / "legal")
    adapted = replace(config(checkpoint), adapters=AdapterSettings(at_start=(("legal", legal),), most=2, max_rank=8))
    held = make_drafter(adapted).adapters.listed()
    assert held.adapters == (AdapterInfo("legal", str(legal), 4),)
    assert held.max_adapters == 2
    assert make_drafter(config(checkpoint)).adapters.listed().max_adapters == 0


def test_an_adapter_that_does_not_fit_stops_the_start_by_name(checkpoint: Path, tmp_path: Path) -> None:
    wide = make_adapter(checkpoint, tmp_path / "wide", rank=20)
    adapted = replace(config(checkpoint), adapters=AdapterSettings(at_start=(("wide", wide),)))
    with pytest.raises(CheckpointError, match=f"{wide}.*r is 20"):
        make_drafter(adapted)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        make_drafter(config(tmp_path))
