"""Rows with adapters, in one batch: each as if it were alone, and as if its adapter were in the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.model_runner import ModelRunner
from slipstream.kernels.batch import Chunk
from slipstream.layers.linear import can_pack
from slipstream.models.adapter import Adapter
from slipstream.models.adapter_slots import AdapterSlots
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_config, load_model, open_checkpoint
from tests.tiny_adapters import merge, only, random_adapter
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
BLOCK, NUM_BLOCKS = 4, 32
PROMPTS = [[5, 6, 7, 8, 9], [10, 11, 12], [13, 14, 15, 16, 17, 18, 19], [20]]


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("base") / "tiny", model_type=request.param)


@pytest.fixture(scope="module")
def config(base: Path) -> ModelConfig:
    return load_config(open_checkpoint(base))


@pytest.fixture(scope="module")
def adapters(config: ModelConfig) -> tuple[Adapter, Adapter]:
    """Of different ranks, and one of some modules only."""
    return random_adapter(config, rank=8, seed=1), only(random_adapter(config, rank=3, seed=2), "v_proj", "up_proj")


def runner_of(model: LlamaModel) -> ModelRunner:
    return ModelRunner(model, KVCache(model.config, NUM_BLOCKS, BLOCK, torch.float32, CPU))


def adapted_runner(base: Path, adapters: tuple[Adapter, ...], *, packed: bool = False) -> ModelRunner:
    model = load_model(base, torch.float32, CPU)
    if packed:
        model.pack()
    slots = AdapterSlots(model, num_slots=2, max_rank=8)
    for slot, adapter in enumerate(adapters):
        slots.fill(slot, adapter)
    return runner_of(model)


def chunk(prompt: list[int], place: int, adapter: int | None) -> Chunk:
    return Chunk(prompt, 0, [2 * place, 2 * place + 1], num_logits=len(prompt), adapter=adapter)


def logits(runner: ModelRunner, *chunks: Chunk) -> list[torch.Tensor]:
    return list(runner.forward(chunks).split([len(chunk.token_ids) for chunk in chunks]))


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_a_mixed_batch_are_what_they_are_alone(
    base: Path, adapters: tuple[Adapter, Adapter], packed: bool
) -> None:
    if packed and not can_pack(CPU, torch.float32):
        pytest.skip("no packed weights here")
    runner = adapted_runner(base, adapters, packed=packed)
    chunks = [chunk(prompt, i, slot) for i, (prompt, slot) in enumerate(zip(PROMPTS, (None, 0, 1, 0), strict=True))]
    together = logits(runner, *chunks)
    for one, mixed in zip(chunks, together, strict=True):
        torch.testing.assert_close(mixed, logits(runner, one)[0], rtol=1e-5, atol=1e-5)


def test_an_adapter_is_what_it_is_merged_into_the_weights(
    base: Path, adapters: tuple[Adapter, Adapter], tmp_path: Path
) -> None:
    runner = adapted_runner(base, adapters)
    plain = logits(runner, chunk(PROMPTS[0], 0, None))[0]
    for slot, adapter in enumerate(adapters):
        merged = runner_of(load_model(merge(base, adapter, tmp_path / str(slot)), torch.float32, CPU))
        adapted = logits(runner, chunk(PROMPTS[0], 0, slot))[0]
        torch.testing.assert_close(adapted, logits(merged, chunk(PROMPTS[0], 0, None))[0], rtol=1e-4, atol=1e-4)
        assert (adapted - plain).abs().max() > 0.1


def test_base_rows_beside_adapters_are_those_of_a_model_without_any(
    base: Path, adapters: tuple[Adapter, Adapter]
) -> None:
    runner, without = adapted_runner(base, adapters), runner_of(load_model(base, torch.float32, CPU))
    mixed = logits(runner, chunk(PROMPTS[0], 0, None), chunk(PROMPTS[1], 1, 0))[0]
    torch.testing.assert_close(mixed, logits(without, chunk(PROMPTS[0], 0, None))[0], rtol=1e-5, atol=1e-5)


def test_a_slot_that_is_filled_again_keeps_nothing_of_the_one_before(
    base: Path, adapters: tuple[Adapter, Adapter]
) -> None:
    model = load_model(base, torch.float32, CPU)
    slots, runner = AdapterSlots(model, num_slots=1, max_rank=8), runner_of(model)
    slots.fill(0, adapters[0])
    slots.fill(0, adapters[1])
    (expected,) = logits(adapted_runner(base, adapters), chunk(PROMPTS[0], 0, 1))
    torch.testing.assert_close(logits(runner, chunk(PROMPTS[0], 0, 0))[0], expected, rtol=1e-5, atol=1e-5)


def test_the_memory_of_a_slot_is_told(base: Path) -> None:
    model = load_model(base, torch.float32, CPU)
    slots = AdapterSlots(model, num_slots=3, max_rank=8)
    # Inputs and outputs of each product, times its matrices' ranks: queries, keys and values; the output; and so on.
    per_layer = 24 * (32 + 64) + 8 * (32 + 32) + 16 * (32 + 128) + 8 * (64 + 32)
    assert slots.bytes_per_slot == 2 * per_layer * 4
