"""A loop draws what single steps draw. Here a capture replays by calling the function; on a GPU it is a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_buffers import Ints, LoopRow, LoopSize
from slipstream.engine.draft_loop import DraftLoop, loop_sizes
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.plain_step import PlainStep
from slipstream.kernels import rotary
from slipstream.kernels.batch import Chunk
from slipstream.kernels.draft_choice import (
    CONFIDENCE,
    Drafting,
    Kind,
    choose_drafts_reference,
    settings_of,
    table_of,
    with_draw,
)
from slipstream.models.adapter_slots import AdapterSlots
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.request import SamplingParams
from tests.tiny_adapters import random_adapter
from tests.tiny_models import make_checkpoint

VOCAB, BLOCK_SIZE, NUM_BLOCKS, MAX_MODEL_LEN = 256, 4, 64, 48
NUM_KEPT, NUM_OUTCOMES, MOST_STEPS = 8, 4, 4
CPU = torch.device("cpu")
DRAFTING = Drafting(torch.arange(VOCAB, dtype=torch.int32), True, NUM_KEPT, NUM_OUTCOMES)
SETTINGS = [
    settings_of(SamplingParams(temperature=0.0), Kind.GREEDY, 0, 0),
    settings_of(SamplingParams(), Kind.COUPLED, 5, 1),
    with_draw(settings_of(SamplingParams(top_p=0.9), Kind.LAW, 6, 0), 77, 3),
]


class EagerCapture:
    """Replays by calling."""

    num_bytes, is_full = 0, False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    folder = make_checkpoint(tmp_path_factory.mktemp("draft"), vocab_size=VOCAB, seed=3, logit_std=3.0)
    return load_model(folder, torch.float32, CPU)


@pytest.fixture(autouse=True)
def _padding_writes_no_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel has it: slot -1 is no slot."""
    write = rotary.write_kv

    def write_real(
        keys: torch.Tensor,
        values: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        real = slots >= 0
        write(keys[real], values[real], key_cache, value_cache, slots[real])

    monkeypatch.setattr(rotary, "write_kv", write_real)


def fresh_cache(model: LlamaModel) -> KVCache:
    return KVCache(model.config, NUM_BLOCKS, BLOCK_SIZE, model.dtype, CPU)


def make_loop(model: LlamaModel, cache: KVCache, sizes: Sequence[LoopSize] | None = None) -> DraftLoop:
    return DraftLoop(
        PlainStep(model, cache, MAX_MODEL_LEN),
        PlainStep(model, cache, MAX_MODEL_LEN),
        model.logits,
        cache.copy_listed_blocks,
        DRAFTING,
        sizes=sizes or loop_sizes(max_rows=8, max_steps=MOST_STEPS),
        max_blocks=MAX_MODEL_LEN // BLOCK_SIZE,
        capture=EagerCapture(),
        adapted=PlainStep(model, cache, MAX_MODEL_LEN),
    )


def prompt(index: int, length: int) -> list[int]:
    return [(31 * index + 7 * k) % VOCAB for k in range(length)]


def row(index: int, *, fed: int, num_steps: int, length: int = 9) -> LoopRow:
    """Of a prompt whose other tokens are in the cache already."""
    blocks = range(8 * index, 8 * index + 8)
    return LoopRow(prompt(index, length)[-fed:], length - fed, blocks, num_steps, SETTINGS[index % len(SETTINGS)])


def prefill(runner: ModelRunner, rows: Sequence[LoopRow]) -> None:
    runner.forward(
        [Chunk(prompt(i, row.start), 0, row.block_ids, 0, adapter=row.adapter) for i, row in enumerate(rows)]
    )


def step_by_step(runner: ModelRunner, row: LoopRow) -> Ints:
    """[num_steps, width], each step a pass of its own over one sequence alone."""
    token_ids, start, results, next_ids = list(row.token_ids), row.start, [], torch.zeros(1, dtype=torch.long)
    for _ in range(row.num_steps):
        logits = runner.forward([Chunk(token_ids, start, row.block_ids, 1, adapter=row.adapter)])
        start += len(token_ids)
        drawn = torch.zeros(1, DRAFTING.width, dtype=torch.int32)
        settings = torch.from_numpy(table_of([row.settings]))
        choose_drafts_reference(logits, settings, torch.tensor([start]), DRAFTING, drawn, next_ids)
        results.append(drawn[0].numpy())
        token_ids = next_ids.tolist()
    return np.array(results)


def same(drawn: Ints, expected: Ints) -> None:
    """Bit for bit, but for the probability, whose last bits depend on the size of the batch."""
    assert drawn[:, CONFIDENCE].view(np.float32) == pytest.approx(expected[:, CONFIDENCE].view(np.float32), rel=1e-4)
    np.testing.assert_array_equal(np.delete(drawn, CONFIDENCE, 1), np.delete(expected, CONFIDENCE, 1))


@pytest.mark.parametrize(
    "rows",
    [
        [row(0, fed=1, num_steps=3)],
        [row(0, fed=4, num_steps=1)],
        [row(0, fed=1, num_steps=4), row(1, fed=2, num_steps=2), row(2, fed=1, num_steps=3)],
        [row(i, fed=1 + i % 2, num_steps=1 + i % 4, length=7 + i) for i in range(7)],
    ],
)
def test_a_loop_draws_what_passes_of_each_row_alone_draw_and_leaves_the_same_kv(
    model: LlamaModel, rows: list[LoopRow]
) -> None:
    looped, alone = fresh_cache(model), fresh_cache(model)
    runners = [ModelRunner(model, cache, MAX_MODEL_LEN) for cache in (looped, alone)]
    for runner in runners:
        runner.forward([Chunk(prompt(i, row.start), 0, row.block_ids, 0) for i, row in enumerate(rows)])
    drawn = make_loop(model, looped).launch(rows)()
    for i, one in enumerate(rows):
        same(drawn[: one.num_steps, i], step_by_step(runners[1], one))
    torch.testing.assert_close(looped._data, alone._data, atol=1e-5, rtol=1e-5)


def test_rows_of_several_adapters_and_of_none_are_drawn_in_one_loop(tmp_path: Path) -> None:
    model = load_model(make_checkpoint(tmp_path, vocab_size=VOCAB, seed=3, logit_std=3.0), torch.float32, CPU)
    slots = AdapterSlots(model, 2, 4)
    for slot in range(2):
        slots.fill(slot, random_adapter(model.config, seed=slot))
    adapters = (1, None, 0)
    rows = [replace(row(i, fed=1 + i % 2, num_steps=2), adapter=adapter) for i, adapter in enumerate(adapters)]
    looped, alone = fresh_cache(model), fresh_cache(model)
    runners = [ModelRunner(model, cache, MAX_MODEL_LEN) for cache in (looped, alone)]
    for runner in runners:
        prefill(runner, rows)
    drawn = make_loop(model, looped, [LoopSize(4, 3)]).launch(rows)()
    for i, one in enumerate(rows):
        same(drawn[:2, i], step_by_step(runners[1], one))
    torch.testing.assert_close(looped._data, alone._data, atol=1e-5, rtol=1e-5)
    without = make_loop(model, looped).launch([replace(one, adapter=None) for one in rows])()
    assert not np.array_equal(without[:2, 0], drawn[:2, 0])


def test_a_larger_size_says_the_same_and_its_padding_writes_nothing(model: LlamaModel) -> None:
    rows = [row(0, fed=2, num_steps=2), row(1, fed=1, num_steps=1)]
    results, caches = [], []
    for size in (LoopSize(2, 2), LoopSize(8, 4)):
        caches.append(fresh_cache(model))
        prefill(ModelRunner(model, caches[-1], MAX_MODEL_LEN), rows)
        loop = make_loop(model, caches[-1], [size])
        loop.launch([row(i, fed=1, num_steps=1) for i in range(2)])()  # leaves its words in the buffers
        prefill(ModelRunner(model, caches[-1], MAX_MODEL_LEN), rows)
        results.append(loop.launch(rows)())
    small, large = results
    same(large[:2, 0], small[:, 0])
    same(large[:1, 1], small[:1, 1])
    torch.testing.assert_close(caches[0]._data, caches[1]._data, atol=1e-5, rtol=1e-5)


def test_two_rows_may_share_the_blocks_before_them(model: LlamaModel) -> None:
    cache = fresh_cache(model)
    ModelRunner(model, cache, MAX_MODEL_LEN).forward([Chunk(prompt(0, 8), 0, [0, 1], 0)])
    rows = [LoopRow([5 + i], 8, [0, 1, 2 + i], 3, SETTINGS[i]) for i in range(2)]
    drawn = make_loop(model, cache).launch(rows)()
    for i, one in enumerate(rows):
        same(drawn[:3, i], step_by_step(ModelRunner(model, cache, MAX_MODEL_LEN), one))


def test_blocks_are_copied_before_a_row_goes_on_in_its_copy(model: LlamaModel) -> None:
    cache = fresh_cache(model)
    runner = ModelRunner(model, cache, MAX_MODEL_LEN)
    runner.forward([Chunk(prompt(0, 7), 0, [4, 6], 0)])
    rows = [LoopRow([5 + i], 7, [4, block, 10 + i], 3, SETTINGS[i]) for i, block in enumerate((6, 0))]
    drawn = make_loop(model, cache).launch(rows, [(6, 0)])()
    expected = fresh_cache(model)
    for i, one in enumerate(rows):
        alone = ModelRunner(model, expected, MAX_MODEL_LEN)
        alone.forward([Chunk(prompt(0, 7), 0, one.block_ids, 0)])
        same(drawn[:3, i], step_by_step(alone, one))


def test_the_least_size_that_fits_is_taken(model: LlamaModel) -> None:
    loop = make_loop(model, fresh_cache(model))
    loop.launch([row(i, fed=1, num_steps=2) for i in range(3)])()
    loop.launch([row(0, fed=4, num_steps=3), row(1, fed=4, num_steps=3)])()  # eight tokens to begin with
    assert sorted(loop.num_loops) == [LoopSize(4, 2), LoopSize(4, 3)]
    assert not loop.holds([row(0, fed=1, num_steps=MOST_STEPS + 1)])
    assert not loop.holds([row(i % 8, fed=1, num_steps=1) for i in range(9)])


def test_sizes_double_up_to_the_most_rows() -> None:
    assert {size.num_rows for size in loop_sizes(max_rows=12, max_steps=2)} == {1, 2, 4, 8, 12}
    assert {size.num_steps for size in loop_sizes(max_rows=1, max_steps=3)} == {1, 2, 3}
