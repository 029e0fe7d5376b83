"""A captured draft loop draws what the same loop draws launch by launch, and in fp32 what passes on a CPU draw."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_buffers import Ints, LoopRow
from slipstream.engine.draft_loop import DraftLoop, loop_sizes
from slipstream.engine.graph_capture import Capture, GraphCapture
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.plain_step import PlainStep
from slipstream.kernels import (
    attention,
    copy_blocks,
    draft_choice,
    linear,
    loop_rows,
    rms_norm,
    rotary,
    silu_mul,
    token_rows,
)
from slipstream.kernels.batch import Chunk
from slipstream.kernels.draft_choice import (
    CONFIDENCE,
    FIRST_OUTCOME,
    TOKEN,
    Drafting,
    Kind,
    choose_drafts_reference,
    settings_of,
    table_of,
    with_draw,
)
from slipstream.models.adapter_slots import AdapterSlots
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.request import SamplingParams
from tests.tiny_adapters import random_adapter

BLOCK_SIZE, BLOCKS, MAX_MODEL_LEN = 16, 8, 128
CONFIG = ModelConfig(
    model_type="llama", vocab_size=640, hidden_size=192, intermediate_size=256, num_layers=3, num_heads=3,
    num_kv_heads=1, head_dim=64, max_position_embeddings=1024, rms_norm_eps=1e-5,
)  # fmt: skip
KEPT, OUTCOMES, STEPS = 16, 5, 4
SETTINGS = [
    settings_of(SamplingParams(temperature=0.0), Kind.GREEDY, 0, 0),
    settings_of(SamplingParams(temperature=0.7), Kind.COUPLED, 5 << 40 | 1, 1),
    with_draw(settings_of(SamplingParams(top_p=0.9), Kind.LAW, 6, 0), 77 << 33, 3),
    with_draw(settings_of(SamplingParams(top_k=10, min_p=0.02), Kind.LAW, 7, 0), 78, 4),
]


class RunCapture:
    """Launches again, kernels also where they are interpreted."""

    num_bytes, is_full = 0, False

    def __init__(self) -> None:
        self.replaying = False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.replaying = True
            run()
            self.replaying = False

        return replay


def make_model(device: torch.device, dtype: torch.dtype) -> LlamaModel:
    torch.manual_seed(0)
    model = LlamaModel(CONFIG, dtype)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.15)
    return model.to(device)


def prompt(index: int) -> list[int]:
    return [(31 * index + 7 * k) % CONFIG.vocab_size for k in range(20 + 11 * index)]


def fed(row: LoopRow) -> list[int]:
    """The prompt that the row is the end of."""
    return prompt(row.block_ids[0] // BLOCKS)


def make_rows(count: int) -> list[LoopRow]:
    rows = []
    for i, token_ids in enumerate(map(prompt, range(count))):
        num_fed, blocks = 1 + i % 2, range(BLOCKS * i, BLOCKS * (i + 1))
        start, settings = len(token_ids) - num_fed, SETTINGS[i % len(SETTINGS)]
        rows.append(LoopRow(token_ids[start:], start, blocks, 1 + (3 + i) % STEPS, settings))
    return rows


def fed_cache(model: LlamaModel, rows: list[LoopRow]) -> tuple[ModelRunner, KVCache]:
    cache = KVCache(model.config, BLOCKS * 4, BLOCK_SIZE, model.dtype, model.embedding.device)
    runner = ModelRunner(model, cache, MAX_MODEL_LEN)
    runner.forward([Chunk(fed(row)[: row.start], 0, row.block_ids, 0, adapter=row.adapter) for row in rows])
    return runner, cache


def loop_of(runner: ModelRunner, cache: KVCache, capture: Capture, *, adapters: bool = False) -> DraftLoop:
    target_ids = torch.arange(CONFIG.vocab_size, dtype=torch.int32, device=runner.model.embedding.device)
    return DraftLoop(
        PlainStep(runner.model, cache, MAX_MODEL_LEN),
        PlainStep(runner.model, cache, MAX_MODEL_LEN),
        runner.model.logits,
        cache.copy_listed_blocks,
        Drafting(target_ids, True, KEPT, OUTCOMES),
        sizes=loop_sizes(max_rows=4, max_steps=STEPS),
        max_blocks=BLOCKS,
        capture=capture,
        adapted=PlainStep(runner.model, cache, MAX_MODEL_LEN) if adapters else None,
    )


def step_by_step(runner: ModelRunner, row: LoopRow) -> Ints:
    token_ids, start, results, next_ids = list(row.token_ids), row.start, [], torch.zeros(1, dtype=torch.long)
    drafting = Drafting(torch.arange(CONFIG.vocab_size, dtype=torch.int32), True, KEPT, OUTCOMES)
    for _ in range(row.num_steps):
        logits = runner.forward([Chunk(token_ids, start, row.block_ids, 1, adapter=row.adapter)])
        start += len(token_ids)
        drawn = torch.zeros(1, drafting.width, dtype=torch.int32)
        settings = torch.from_numpy(table_of([row.settings]))
        choose_drafts_reference(logits, settings, torch.tensor([start]), drafting, drawn, next_ids)
        results.append(drawn[0].numpy())
        token_ids = next_ids.tolist()
    return np.array(results)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_captured_loop_draws_what_its_launches_draw(dtype: torch.dtype, count: int, device: torch.device) -> None:
    rows, results = make_rows(count), []
    for capture in (RunCapture(), GraphCapture(device, 1 << 30)):
        model = make_model(device, dtype)
        runner, cache = fed_cache(model, rows)
        loop = loop_of(runner, cache, capture)
        if count == 3:
            loop.prepare()  # sizes captured before must not disturb
        loop.launch(rows)()
        results.append((loop.launch(rows)(), cache._data.clone()))
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(results[0][0][: row.num_steps, i], results[1][0][: row.num_steps, i])
    assert torch.equal(results[0][1], results[1][1])


KERNELS = (attention, copy_blocks, draft_choice, linear, loop_rows, rms_norm, rotary, silu_mul, token_rows)


def test_with_kernels_a_loop_draws_the_tokens_of_passes_without(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, on_cpu, capture = make_rows(3)[1:], make_model(torch.device("cpu"), torch.float32), RunCapture()
    runner, cache = fed_cache(copy.deepcopy(on_cpu).to(device), rows)
    if device.type == "cpu":
        for module in KERNELS:
            monkeypatch.setattr(module, "fused", lambda x: capture.replaying)
    drawn = loop_of(runner, cache, capture).launch(rows)()
    compare(drawn, rows, fed_cache(on_cpu, rows)[0])


@pytest.mark.gpu
def test_in_fp32_a_captured_loop_draws_the_tokens_of_passes_on_a_cpu(device: torch.device) -> None:
    rows, on_cpu = make_rows(4), make_model(torch.device("cpu"), torch.float32)
    runner, cache = fed_cache(copy.deepcopy(on_cpu).to(device), rows)
    drawn = loop_of(runner, cache, GraphCapture(device, 1 << 30)).launch(rows)()
    compare(drawn, rows, fed_cache(on_cpu, rows)[0])


@pytest.mark.gpu
def test_in_fp32_a_captured_loop_of_rows_with_adapters_draws_the_tokens_of_passes_on_a_cpu(
    device: torch.device,
) -> None:
    rows = [replace(row, adapter=adapter) for row, adapter in zip(make_rows(3), (1, None, 0), strict=True)]
    models = [make_model(where, torch.float32) for where in (device, torch.device("cpu"))]
    for model in models:
        slots = AdapterSlots(model, 2, 4)
        for slot in range(2):
            slots.fill(slot, random_adapter(CONFIG, seed=slot))
    runner, cache = fed_cache(models[0], rows)
    drawn = loop_of(runner, cache, GraphCapture(device, 1 << 30), adapters=True).launch(rows)()
    compare(drawn, rows, fed_cache(models[1], rows)[0])


def compare(drawn: Ints, rows: list[LoopRow], runner: ModelRunner) -> None:
    first_law = FIRST_OUTCOME + OUTCOMES
    for i, row in enumerate(rows):
        got, expected = drawn[: row.num_steps, i], step_by_step(runner, row)
        np.testing.assert_array_equal(got[:, TOKEN], expected[:, TOKEN])
        np.testing.assert_array_equal(got[:, FIRST_OUTCOME:first_law], expected[:, FIRST_OUTCOME:first_law])
        assert np.abs(got[:, first_law + KEPT :] - expected[:, first_law + KEPT :]).max() <= 8, "counts of 32768"
        confidences = got[:, CONFIDENCE].view(np.float32)
        np.testing.assert_allclose(confidences, expected[:, CONFIDENCE].view(np.float32), rtol=1e-3)
