"""A widened model says what the small one says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.config import default_model_dir
from slipstream.engine.model_runner import ModelRunner
from slipstream.kernels.batch import Chunk
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.models.widen import SHAPES, Shape, widen, widened_config
from slipstream.parallel.ranks import RankGroup
from tests.parallel.rank_threads import on_ranks
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
SHAPE = Shape(hidden_size=80, intermediate_size=96, num_layers=3, num_heads=12, num_kv_heads=3, head_dim=16)


def logits(model: LlamaModel) -> torch.Tensor:
    runner = ModelRunner(model, KVCache(model.share, 16, 4, model.dtype, CPU))
    first = runner.forward([Chunk([1, 40, 41, 42, 200, 7, 9], 0, [5, 2], 7), Chunk([60, 61], 0, [3], 2)])
    return torch.cat((first, runner.forward([Chunk([50], 7, [5, 2], 1)])))


@pytest.mark.parametrize("entries", [{}, {"tie_word_embeddings": True}, {"num_attention_heads": 2}])
def test_logits_are_those_of_the_small_model(tmp_path: Path, entries: dict[str, Any]) -> None:
    small = load_model(make_checkpoint(tmp_path, seed=4, **entries), torch.float32, CPU)
    wide = widen(small, SHAPE)
    torch.testing.assert_close(logits(wide), logits(small), atol=2e-5, rtol=1e-4)


def test_every_wide_weight_costs_its_read_and_no_layer_is_spared(tmp_path: Path) -> None:
    small = load_model(make_checkpoint(tmp_path), torch.float32, CPU)
    wide = widen(small, SHAPE)
    assert wide.config == widened_config(small.config, SHAPE)
    assert wide.layers[2].mlp.gate_up_proj.weight.count_nonzero() == 2 * 96 * 80
    assert all(parameter.isfinite().all() for parameter in wide.parameters())


@pytest.mark.parametrize("entries", [{}, {"tie_word_embeddings": True}])
def test_each_rank_makes_its_part_of_the_wide_model(tmp_path: Path, entries: dict[str, Any]) -> None:
    """Three KV heads and 320 tokens, on two ranks."""
    small = load_model(make_checkpoint(tmp_path, seed=4, **entries), torch.float32, CPU)

    def run(ranks: RankGroup) -> torch.Tensor:
        return logits(widen(small, SHAPE, ranks))

    for part in on_ranks(2, run):
        torch.testing.assert_close(part, logits(small), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "change, name",
    [
        ({"hidden_size": 64}, "hidden_size is 80, the shape has 64"),
        ({"num_layers": 2}, "num_layers is 3"),
        ({"head_dim": 24}, "head_dim is 16; it must divide 24"),
        ({"num_heads": 3}, "12 heads share 3 KV heads"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_size(tmp_path: Path, change: dict[str, int], name: str) -> None:
    small = load_model(make_checkpoint(tmp_path), torch.float32, CPU)
    wide = widened_config(small.config, SHAPE)
    with pytest.raises(ValueError, match=name):
        widened_config(wide, replace(SHAPE, **change))


def test_a_model_with_norms_of_queries_is_refused(tmp_path: Path) -> None:
    small = load_model(make_checkpoint(tmp_path, model_type="qwen3"), torch.float32, CPU)
    with pytest.raises(ValueError, match="norms of queries"):
        widened_config(small.config, SHAPE)


@pytest.mark.model
def test_the_real_model_fits_the_large_shapes_and_keeps_its_text_in_a_slightly_larger_one() -> None:
    small = load_model(default_model_dir() / "smollm2-135m-instruct", torch.float32, CPU)
    for shape in SHAPES.values():
        widened_config(small.config, shape)
    near = Shape(hidden_size=640, intermediate_size=1600, num_layers=31, num_heads=16, num_kv_heads=4, head_dim=128)
    assert torch.equal(logits(widen(small, near)).argmax(-1), logits(small).argmax(-1))
