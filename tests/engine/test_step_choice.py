"""Fast draft steps are used for few rows, and only where they do what the plain one does."""

from __future__ import annotations

import logging

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.plain_step import DraftStep, PlainStep
from slipstream.engine.step_choice import MOST_ROWS, StepByRows, StepKind, StepTrial, make_draft_step
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel

MAX_MODEL_LEN = 64
CONFIG = ModelConfig(
    model_type="llama", vocab_size=32, hidden_size=16, intermediate_size=16, num_layers=1, num_heads=2, num_kv_heads=1,
    head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5,
)  # fmt: skip


class ScaledStep:
    """Wrong by a factor."""

    error: torch.Tensor | None = None

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
    return KVCache(CONFIG, 72, 16, torch.float32, torch.device("cpu"))


@pytest.fixture
def plain(model: LlamaModel, kv_cache: KVCache) -> PlainStep:
    return PlainStep(model, kv_cache, MAX_MODEL_LEN)


@pytest.fixture
def trial(plain: PlainStep, kv_cache: KVCache) -> StepTrial:
    return StepTrial(plain, kv_cache, MAX_MODEL_LEN)


@pytest.mark.parametrize("kind", [StepKind.AUTO, StepKind.FUSED])
def test_a_cpu_has_the_plain_step(model: LlamaModel, kv_cache: KVCache, kind: StepKind) -> None:
    assert isinstance(make_draft_step(model, kv_cache, MAX_MODEL_LEN, kind, [1, 2]), PlainStep)


def test_a_step_that_does_the_same_is_believed(trial: StepTrial, plain: PlainStep) -> None:
    fast = ScaledStep(plain, 1.01)
    assert trial.believed("fused", lambda: fast) is fast


@pytest.mark.parametrize("factor", [1.2, float("nan")])
def test_a_wrong_step_is_not_believed_and_told(
    trial: StepTrial, plain: PlainStep, factor: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert trial.believed("fused", lambda: ScaledStep(plain, factor)) is None
    assert "no fused draft steps: they are wrong by" in caplog.text


def test_a_step_that_cannot_be_made_is_told(trial: StepTrial, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> DraftStep:
        raise ValueError("its products have biases")

    with caplog.at_level(logging.WARNING):
        assert trial.believed("fused", refuse) is None
    assert "its products have biases" in caplog.text


def test_each_number_of_rows_takes_what_was_fastest_for_it(
    trial: StepTrial, plain: PlainStep, caplog: pytest.LogCaptureFixture
) -> None:
    """The fast step takes a second, the plain one less for eight rows."""
    fast, measured = ScaledStep(plain, 1.0), iter([2.0, 1.0, 0.5, 1.0])
    with caplog.at_level(logging.INFO):
        chosen = trial.fastest({"fused": fast}, [8, 2, 2, MOST_ROWS + 1], lambda run: next(measured))
    assert [chosen.step_for(n) for n in (1, 2, 3, 8, 9, MOST_ROWS + 1)] == [fast, fast, plain, plain, plain, plain]
    assert "draft steps of up to 2 rows are fused: separate 2000.000 ms, fused 1000.000 ms" in caplog.text


@torch.inference_mode()
@pytest.mark.parametrize(("num_rows", "factor"), [(MOST_ROWS, 2.0), (MOST_ROWS + 1, 1.0)])
def test_many_rows_take_the_plain_step(plain: PlainStep, num_rows: int, factor: float) -> None:
    rows = torch.ones(num_rows, dtype=torch.int64), torch.ones(num_rows, dtype=torch.int64)
    tables = torch.arange(num_rows)[:, None] + torch.zeros(4, dtype=torch.int64)
    step = StepByRows({MOST_ROWS: ScaledStep(plain, 2.0)}, plain)
    torch.testing.assert_close(step(*rows, tables), plain(*rows, tables) * factor)


def test_the_error_of_a_step_that_has_one_is_told(plain: PlainStep) -> None:
    failing = ScaledStep(plain, 1.0)
    failing.error = torch.ones(1)
    assert StepByRows({1: plain, 2: failing}, plain).error is failing.error
    assert StepByRows({1: plain}, plain).error is None
