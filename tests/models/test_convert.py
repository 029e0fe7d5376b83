"""A GGUF file becomes a Hugging Face folder of the same model."""

import json
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import load_file
from tokenizers import Tokenizer

from slipstream.config import default_model_dir
from slipstream.errors import CheckpointError
from slipstream.models.convert import convert_gguf
from slipstream.models.loader import load_config, open_checkpoint
from tests.models.gguf_writer import write_gguf
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint


def checkpoint_with_a_merge(path: Path) -> Path:
    """GGUF's readers expect a vocabulary to have merges; the tiny one has none."""
    make_checkpoint(path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["qz"] = vocabulary.pop(max(vocabulary, key=vocabulary.__getitem__))
    tokenizer["model"]["merges"] = [["q", "z"]]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint, and itself after a journey through GGUF."""
    root = tmp_path_factory.mktemp("convert")
    folder = checkpoint_with_a_merge(root / "before")
    convert_gguf(write_gguf(folder, root / "model.gguf", GGMLQuantizationType.F32), root / "after", torch.float32)
    return folder, root / "after"


def test_the_folder_holds_the_same_weights_and_configuration(folders: tuple[Path, Path]) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in folders)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    first, second = (load_config(open_checkpoint(folder)) for folder in folders)
    assert first == second


def test_the_tokenizer_and_the_chat_template_come_along(folders: tuple[Path, Path]) -> None:
    before, after = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in folders)
    text = "<|im_start|>h\u00e9llo \u20ac 12 qz\n"
    assert before.get_vocab() == after.get_vocab()
    assert before.encode(text).ids == after.encode(text).ids
    assert after.decode(after.encode(text).ids, skip_special_tokens=False) == text
    config = json.loads((folders[1] / "tokenizer_config.json").read_text())
    assert (config["chat_template"], config["eos_token"]) == (CHAT_TEMPLATE, "<|im_end|>")


def test_weights_are_stored_in_the_dtype_asked_for_and_readable_by_all(tmp_path: Path) -> None:
    file = write_gguf(checkpoint_with_a_merge(tmp_path / "a"), tmp_path / "model.gguf", GGMLQuantizationType.Q8_0)
    convert_gguf(file, tmp_path / "made")
    assert {tensor.dtype for tensor in load_file(tmp_path / "made" / "model.safetensors").values()} == {torch.bfloat16}
    assert (tmp_path / "made" / "model.safetensors").stat().st_mode & 0o044 == 0o044


def test_a_broken_file_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"model\.gguf"):
        convert_gguf(tmp_path / "model.gguf", tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.model
def test_the_real_models_tokenizer_ends_at_im_end_and_splits_digits() -> None:
    folder = default_model_dir() / "smollm2-135m-instruct"
    config = load_config(open_checkpoint(folder))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert config.eos_token_ids == (tokenizer.token_to_id("<|im_end|>"),) == (2,)
    assert tokenizer.encode("  123 a").tokens == ["\u0120\u0120", "1", "2", "3", "\u0120a"]
    assert "<|im_start|>" in json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
