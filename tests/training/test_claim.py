"""Text of one origin is not mixed with another's, and what differs is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.training.claim import claim_folder, file_digests, model_digest
from tests.tiny_models import make_similar_checkpoint

ORIGIN = {"target": "a1", "length": 768, "texts": ["b2"]}


def test_the_same_origin_may_come_again(tmp_path: Path) -> None:
    for _ in range(2):
        claim_folder(tmp_path / "run", ORIGIN)


@pytest.mark.parametrize("other", [{"target": "c3"}, {"length": 512}, {"texts": []}])
def test_another_origin_is_refused_by_name_and_values(tmp_path: Path, other: dict[str, object]) -> None:
    claim_folder(tmp_path / "run", ORIGIN)
    ((name, value),) = other.items()
    with pytest.raises(ValueError, match="use the same, or another --run folder") as raised:
        claim_folder(tmp_path / "run", ORIGIN | other)
    assert f"{name} = {ORIGIN[name]!r}, not {value!r}" in str(raised.value)


def test_models_are_told_apart_wherever_they_lie(target: LlamaModel, target_folder: Path, tmp_path: Path) -> None:
    again = load_model(target_folder, torch.float32, torch.device("cpu"))
    other = load_model(make_similar_checkpoint(target_folder, tmp_path / "t"), torch.float32, torch.device("cpu"))
    assert model_digest(target) == model_digest(again) != model_digest(other)


def test_files_are_told_apart_by_what_they_hold(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file, text in zip(files, ("one", "one", "two"), strict=True):
        file.write_text(text)
    first, same, other = file_digests(files)
    assert first == same != other
