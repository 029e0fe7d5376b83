"""Draft steps of fused phases and of the persistent kernel agree with the model layer by layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.fused_step import FusedStep, Ground, PersistentStep
from slipstream.engine.plain_step import PlainStep
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from tests.kernels.gpu.draft_step_builds import build_all

BLOCK_SIZE = 16
PROGRAMS = 8
MAX_MODEL_LEN = 2048
SMALL = ModelConfig(
    model_type="llama", vocab_size=64, hidden_size=80, intermediate_size=48, num_layers=2, num_heads=4, num_kv_heads=2,
    head_dim=16, max_position_embeddings=MAX_MODEL_LEN, rms_norm_eps=1e-5, tie_word_embeddings=True,
)  # fmt: skip
SMALLEST = replace(SMALL, intermediate_size=16, num_heads=2, num_kv_heads=1)  # of few programs, for the interpreter
WIDE = replace(SMALL, hidden_size=576, intermediate_size=1536, head_dim=64, num_heads=9, num_kv_heads=3)  # 135M's


def make_model(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> LlamaModel:
    generator = torch.Generator().manual_seed(3)
    model = LlamaModel(config, dtype).to(device)
    for parameter in model.parameters():
        mean, std = (1, 0.1) if parameter.dim() == 1 else (0, parameter.shape[-1] ** -0.5)
        parameter.data = (torch.randn(parameter.shape, generator=generator) * std + mean).to(device, dtype)
    return model


def make_cache(model: LlamaModel, num_blocks: int, seed: int = 4) -> KVCache:
    cache = KVCache(model.config, num_blocks, BLOCK_SIZE, model.dtype, model.embedding.device)
    generator = torch.Generator().manual_seed(seed)
    cache._data.copy_(torch.randn(cache._data.shape, generator=generator))
    return cache


def make_rows(contexts: list[int], vocab: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, context lengths and block tables: every row has blocks of its own, in no order."""
    width = -(-max(contexts) // BLOCK_SIZE)
    generator = torch.Generator().manual_seed(len(contexts))
    tables = 1 + torch.randperm(width * len(contexts), generator=generator).view(len(contexts), width)
    token_ids = torch.randint(vocab, (len(contexts),), generator=generator)
    return token_ids.to(device), torch.tensor(contexts, device=device), tables.to(device)


def make_step(make: type[FusedStep], ground: Ground) -> FusedStep:
    return PersistentStep(ground, PROGRAMS) if make is PersistentStep else make(ground)


@torch.inference_mode()
def check(
    make: type[FusedStep], config: ModelConfig, contexts: list[int], dtype: torch.dtype, device: torch.device
) -> None:
    """Twice: the second step finds scratch memory, counters and the KV cache as the first one left them."""
    model = make_model(config, dtype, device)
    reference = make_model(config, torch.float32, device)
    rows = make_rows(contexts, config.vocab_size, device)
    num_blocks, width = 1 + rows[2].numel(), rows[2].shape[1]
    caches = make_cache(model, num_blocks), make_cache(reference, num_blocks)
    fused = make_step(make, Ground.of(model, caches[0], MAX_MODEL_LEN))
    plain = PlainStep(reference, caches[1], width * BLOCK_SIZE)
    for token_ids in (rows[0], rows[0].flip(0)):
        expected = plain(token_ids, *rows[1:])
        near(fused(token_ids, *rows[1:]), expected, dtype)
        near(caches[0]._data, caches[1]._data, dtype)


def near(output: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    error = ((output.float() - expected).norm() / expected.norm()).item()
    assert error < (1e-5 if dtype == torch.float32 else 2e-2)


@pytest.mark.parametrize(
    ("config", "contexts"),
    [
        (SMALLEST, [1, 130]),
        pytest.param(SMALL, [37, 1, 1030], marks=pytest.mark.slow),  # two turns of the longest one's splits
        pytest.param(SMALL, [*range(40, 60)], marks=pytest.mark.slow),
        pytest.param(SMALLEST, [40] * 33, marks=pytest.mark.slow),
    ],
)
def test_fused_phases_are_the_model(config: ModelConfig, contexts: list[int], device: torch.device) -> None:
    check(FusedStep, config, contexts, torch.float32, device)


@pytest.mark.gpu
@pytest.mark.parametrize("contexts", [[37], [1, 130, 64, 16], [*range(40, 60)], [300] * 40, [1500, 3]])
@pytest.mark.parametrize(("make", "config"), [(FusedStep, SMALL), (FusedStep, WIDE), (PersistentStep, SMALL)])
def test_compiled_steps_are_the_model(
    make: type[FusedStep], config: ModelConfig, contexts: list[int], device: torch.device
) -> None:
    check(make, config, contexts, torch.bfloat16, device)


@torch.inference_mode()
def test_an_inert_row_writes_no_keys(device: torch.device) -> None:
    model = make_model(SMALLEST, torch.float32, device)
    token_ids, _, tables = make_rows([20, 20], SMALLEST.vocab_size, device)
    cache = make_cache(model, 1 + tables.numel())
    before = cache._data.clone()
    step = FusedStep(Ground.of(model, cache, MAX_MODEL_LEN))
    hidden = step(token_ids, torch.tensor([20, 0], device=device), tables)
    changed = (cache._data != before).any(-1).any(-1)  # [keys and values, layers, blocks, tokens]
    assert {tuple(place) for place in changed.nonzero()[:, 2:].tolist()} == {(tables[0, 1].item(), 3)}
    assert hidden.isfinite().all()


@pytest.mark.gpu
@torch.inference_mode()
def test_a_barrier_that_never_opens_is_given_up_and_told(device: torch.device) -> None:
    model = make_model(SMALL, torch.bfloat16, device)
    rows = make_rows([20, 20], SMALL.vocab_size, device)
    step = PersistentStep(Ground.of(model, make_cache(model, 1 + rows[2].numel()), MAX_MODEL_LEN), PROGRAMS)
    step(*rows)
    assert step.error.item() == 0
    step._sync.counter.sub_(1)
    step._sync = step._sync._replace(patience=100)
    step(*rows)
    assert step.error.item() == 1


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_kernel_builds_for_hopper() -> None:
    ptx = build_all()
    assert all(".target sm_90" in text for text in ptx.values())
    assert all("mma.sync" in text for name, text in ptx.items() if name.partition(" ")[0] not in ("EMBED", "FINISH"))
    assert all("ld.global.v4.b32" in text for text in ptx.values())  # sixteen bytes at a time
    assert "red.global" in ptx["OUTPUT 8"] or "atom.global" in ptx["OUTPUT 8"]
    assert "ld.acquire.gpu" in ptx["persistent"]
    assert "atom.global.gpu.release" in ptx["persistent"]
