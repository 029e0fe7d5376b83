"""A GGUF file reads like the folder that it was made from."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from slipstream.errors import CheckpointError
from slipstream.layers.rotary import inverse_frequencies, llama3_factors
from slipstream.models.config import ModelConfig, RopeConfig
from slipstream.models.gguf_file import GGUFCheckpoint, unpermute
from slipstream.models.loader import load_config, load_model
from tests.models.gguf_writer import write_gguf
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
TOKENS = torch.tensor([[1, 50, 60, 70, 80, 90, 100, 110]])


@torch.inference_mode()
def logits(path: Path) -> torch.Tensor:
    model = load_model(path, torch.float32, CPU)
    return model.logits(model.forward_dense(TOKENS))


@pytest.mark.parametrize(
    "config",
    [{}, {"tie_word_embeddings": True, "rope_theta": 1e5}, {"model_type": "qwen2"}, {"model_type": "qwen3"}],
    ids=["llama", "tied", "qwen2", "qwen3"],
)
def test_a_gguf_file_computes_what_its_folder_computes(config: dict[str, Any], tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "folder", **config)
    file = write_gguf(folder, tmp_path / "model.gguf", Kind.F32)
    torch.testing.assert_close(logits(file), logits(folder), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q5_1, Kind.Q5_0, Kind.Q4_1, Kind.Q4_0])
def test_quantised_matrices_are_read(kind: Kind, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "folder")
    near, exact = logits(write_gguf(folder, tmp_path / "model.gguf", kind)), logits(folder)
    limit = 0.35 if kind in (Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1) else 0.02
    assert 0 < (near - exact).std() < limit * exact.std()


def test_the_configuration_comes_from_the_metadata(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "folder", head_dim=16, rope_theta=5e4, rms_norm_eps=1e-6)
    config = load_config(GGUFCheckpoint(write_gguf(folder, tmp_path / "model.gguf", Kind.F32)))
    assert (config.model_type, config.vocab_size, config.hidden_size, config.intermediate_size) == (
        "llama",
        320,
        32,
        64,
    )
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (2, 4, 2, 16)
    assert (config.rms_norm_eps, config.rope.theta, config.max_position_embeddings) == (1e-6, 5e4, 512)
    assert (config.bos_token_id, config.eos_token_ids, config.tie_word_embeddings) == (1, (2,), False)


def test_llama3_scaling_is_recognised_from_its_factors(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "folder", rope_theta=500000.0, head_dim=16)
    rope = RopeConfig(theta=500000.0, kind="llama3", factor=32.0)
    factors = llama3_factors(rope, inverse_frequencies(RopeConfig(theta=500000.0), 16)).numpy()
    file = write_gguf(folder, tmp_path / "model.gguf", Kind.F32, **{"rope_freqs/weight": factors})
    assert ModelConfig.from_hf(GGUFCheckpoint(file).config()).rope == rope
    odd = write_gguf(folder, tmp_path / "odd.gguf", Kind.F32, **{"rope_freqs/weight": factors[::-1].copy()})
    with pytest.raises(CheckpointError, match="does not follow Llama 3's rule"):
        GGUFCheckpoint(odd).config()


def test_unpermuting_brings_the_halves_of_a_head_together() -> None:
    stored = np.array([[0, 4, 1, 5, 2, 6, 3, 7, 10, 14, 11, 15, 12, 16, 13, 17]], dtype=np.float32).T
    assert unpermute(stored, 2)[:, 0].tolist() == [*range(8), *range(10, 18)]


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    file = write_gguf(make_checkpoint(tmp_path / "folder"), tmp_path / "model.gguf", Kind.F32)
    content = file.read_bytes()
    for size in (0, 3, 100, len(content) // 2, len(content) - 100):
        file.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match=r"model\.gguf: is truncated or no GGUF file"):
            GGUFCheckpoint(file)


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.gguf: no such file"):
        GGUFCheckpoint(tmp_path / "missing.gguf")
    (tmp_path / "garbage.gguf").write_bytes(b"GGUF" + b"\xff" * 5000)
    with pytest.raises(CheckpointError, match=r"garbage\.gguf: is truncated or no GGUF file"):
        GGUFCheckpoint(tmp_path / "garbage.gguf")


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="architecture 'mamba' is not supported"):
        GGUFCheckpoint(tmp_path / "model.gguf")
