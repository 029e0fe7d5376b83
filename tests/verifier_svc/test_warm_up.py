"""Warming up runs every kind of step, on the smallest cache too, and leaves nothing behind that could be seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.errors import CheckpointError
from slipstream.kernels.batch import Chunk
from tests.tiny_models import make_checkpoint
from verifier_svc.config import VerifierConfig
from verifier_svc.service import make_verifier
from verifier_svc.warm_up import LAWS, NUM_DRAFT_TOKENS, warm_up


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("warm") / "tiny")


def config(model: Path, **limits: int) -> EngineConfig:
    return EngineConfig(model=model, dtype="float32", **limits)  # type: ignore[arg-type]


def test_prefill_decoding_and_drafts_of_every_law_are_run(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, batches = make_runner(config(model)), list[list[int]]()
    forward = runner.forward

    def seen(chunks: Sequence[Chunk]) -> torch.Tensor:
        batches.append([len(chunk.token_ids) for chunk in chunks])
        return forward(chunks)

    monkeypatch.setattr(runner, "forward", seen)
    warm_up(runner)
    kinds = 2 * len(LAWS)
    verify = NUM_DRAFT_TOKENS + 1
    assert batches == [[59], [1], *([[verify]] * kinds), [verify] * kinds]


@pytest.mark.parametrize("limits", [{"num_kv_blocks": 1, "block_size": 1}, {"num_kv_blocks": 3, "block_size": 1}])
def test_the_smallest_cache_is_warmed_up_as_far_as_it_goes(model: Path, limits: dict[str, int]) -> None:
    warm_up(make_runner(config(model, **limits)))
    warm_up(make_runner(config(model, max_model_len=1)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_computes_no_numbers_is_refused(model: Path, value: float) -> None:
    runner = make_runner(config(model))
    with torch.no_grad():
        runner.model.embedding.fill_(value)
    with pytest.raises(CheckpointError, match="no numbers"):
        warm_up(runner)


def test_the_context_after_it_is_computed_as_if_it_had_not_been(model: Path) -> None:
    def logits(runner: ModelRunner) -> torch.Tensor:
        return runner.forward([Chunk([3, 4, 5, 6], 0, range(1), num_logits=4)])

    cold, warm = make_runner(config(model)), make_runner(config(model))
    warm_up(warm)
    torch.testing.assert_close(logits(warm), logits(cold))


def test_a_verifier_is_warm_and_empty_when_it_is_made(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[ModelRunner] = []
    monkeypatch.setattr("verifier_svc.service.warm_up", warmed.append)
    verifier = make_verifier(VerifierConfig(engine=config(model)))
    assert len(warmed) == 1
    assert verifier.pool.num_used == 0
