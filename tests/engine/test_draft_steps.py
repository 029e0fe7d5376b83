"""Fast draft steps are used for few rows, and only where they do what the plain one does."""

from __future__ import annotations

import logging

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_step import DraftStep, PlainStep
from slipstream.engine.draft_steps import MOST_ROWS, SwitchedStep, believed, make_draft_step
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel

MAX_MODEL_LEN = 64
CONFIG = ModelConfig(
    model_type="llama", vocab_size=32, hidden_size=16, intermediate_size=16, num_layers=1, num_heads=2, num_kv_heads=1,
    head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5,
)  # fmt: skip


class ScaledStep:
    """Wrong by a factor."""

    def __init__(self, plain: DraftStep, factor: float) -> None:
        self._plain, self._factor = plain, factor

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        return self._plain(token_ids, context_lens, block_tables) * self._factor


@pytest.fixture
def model() -> LlamaModel:
    torch.manual_seed(0)
    model = LlamaModel(CONFIG, torch.float32)
    for parameter in model.parameters():
        parameter.data.normal_()
    return model


@pytest.fixture
def kv_cache(model: LlamaModel) -> KVCache:
    return KVCache(CONFIG, 64, 16, torch.float32, torch.device("cpu"))


@pytest.fixture
def plain(model: LlamaModel, kv_cache: KVCache) -> PlainStep:
    return PlainStep(model, kv_cache, MAX_MODEL_LEN)


def test_a_cpu_has_the_plain_step(model: LlamaModel, kv_cache: KVCache) -> None:
    assert isinstance(make_draft_step(model, kv_cache, MAX_MODEL_LEN), PlainStep)


def test_a_step_that_does_the_same_is_used(plain: PlainStep, kv_cache: KVCache) -> None:
    assert isinstance(believed(lambda: ScaledStep(plain, 1.01), plain, kv_cache, MAX_MODEL_LEN), SwitchedStep)


@pytest.mark.parametrize("factor", [1.1, float("nan")])
def test_a_wrong_step_is_not_used_and_told(
    plain: PlainStep, kv_cache: KVCache, factor: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert believed(lambda: ScaledStep(plain, factor), plain, kv_cache, MAX_MODEL_LEN) is plain
    assert "wrong by" in caplog.text


def test_a_step_that_cannot_be_made_is_not_used_and_told(
    plain: PlainStep, kv_cache: KVCache, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> DraftStep:
        raise ValueError("its products have biases")

    with caplog.at_level(logging.WARNING):
        assert believed(refuse, plain, kv_cache, MAX_MODEL_LEN) is plain
    assert "its products have biases" in caplog.text


@torch.inference_mode()
@pytest.mark.parametrize(("num_rows", "factor"), [(MOST_ROWS, 2.0), (MOST_ROWS + 1, 1.0)])
def test_many_rows_take_the_plain_step(plain: PlainStep, num_rows: int, factor: float) -> None:
    rows = torch.ones(num_rows, dtype=torch.int64), torch.ones(num_rows, dtype=torch.int64)
    tables = torch.arange(num_rows)[:, None] + torch.zeros(4, dtype=torch.int64)
    step = SwitchedStep(ScaledStep(plain, 2.0), plain, MOST_ROWS)
    torch.testing.assert_close(step(*rows, tables), plain(*rows, tables) * factor)
