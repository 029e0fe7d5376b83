"""Features lie where the KV of their tokens lies, are made only when wanted, and are those of the tapped states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.feature_tap import FeatureSpan, make_feature_tap
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.scoring import ScoredChunk
from slipstream.errors import CheckpointError
from slipstream.kernels.batch import Chunk
from slipstream.models.eagle3_checkpoint import load_projection
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from tests.engine.test_graph_runner import CpuGraphRunner, padded_runner
from tests.models.eagle3_heads import HIDDEN, head_config, head_weights, make_head, write_head
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
BLOCK_SIZE = 4
TOKENS = list(range(40, 55))
BLOCKS = [7, 2, 9, 4]


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("target"), layers=6)


@pytest.fixture
def target(target_folder: Path) -> LlamaModel:
    return load_model(target_folder, torch.float32, CPU)


def tapped(runner: ModelRunner, head: Path) -> ModelRunner:
    runner.tap_features(make_feature_tap(head, runner.config, runner.kv_cache, torch.float32))
    return runner


def plain_runner(target: LlamaModel) -> ModelRunner:
    return ModelRunner(target, KVCache(target.config, 16, BLOCK_SIZE, torch.float32, CPU))


def features(runner: ModelRunner, start: int, end: int) -> torch.Tensor:
    assert runner.feature_tap is not None
    (data,) = runner.feature_tap.read([FeatureSpan(BLOCKS, start, end)])
    bits = torch.from_numpy(np.frombuffer(data, np.int16).copy())
    return bits.view(torch.bfloat16).view(end - start, HIDDEN).float()


@torch.no_grad()
def expected(target: LlamaModel, head: Path, layer_ids: tuple[int, ...]) -> torch.Tensor:
    states = []
    hidden = target.embedding[TOKENS][None]
    cos_sin = target.rotary(torch.arange(len(TOKENS))[None], torch.float32)
    for layer in target.layers:
        states.append(hidden[0])
        hidden = layer.forward_dense(hidden, cos_sin, None)
    states.append(target.norm(hidden)[0])
    made: torch.Tensor = load_projection(head, torch.float32, CPU)([states[index] for index in layer_ids])
    return made


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("aux, layer_ids", [(True, (2, 3, 3)), (False, (6,))])
def test_features_are_made_of_the_states_entering_the_heads_layers(
    target: LlamaModel, tmp_path: Path, aux: bool, layer_ids: tuple[int, ...], packed: bool
) -> None:
    eagle = {"use_aux_hidden_state": aux}
    head = write_head(tmp_path / "head", head_config(eagle_config=eagle), head_weights(aux=aux))
    wanted = expected(target, head, layer_ids)
    if packed:
        target.pack()
    runner = tapped(plain_runner(target), head)
    for start, end in ((0, 9), (9, 10), (10, 15)):
        runner.forward([Chunk(TOKENS[start:end], start, BLOCKS, 1, wants_features=True)])
    torch.testing.assert_close(features(runner, 0, 15), wanted, rtol=0.01, atol=0.01)
    torch.testing.assert_close(features(runner, 5, 11), wanted[5:11], rtol=0.01, atol=0.01)


def test_tokens_that_are_scored_have_the_same_features(target: LlamaModel, tmp_path: Path) -> None:
    head = make_head(tmp_path / "head")
    plain, scoring = tapped(plain_runner(target), head), tapped(plain_runner(target), head)
    plain.forward([Chunk(TOKENS, 0, BLOCKS, 1, wants_features=True)])
    scoring.score([ScoredChunk(Chunk(TOKENS, 0, BLOCKS, 15, wants_features=True), TOKENS, 0)])
    torch.testing.assert_close(features(scoring, 0, 15), features(plain, 0, 15))


def test_nothing_is_made_unless_a_sequence_wants_it_and_the_logits_stay(target: LlamaModel, tmp_path: Path) -> None:
    runner, plain = tapped(plain_runner(target), make_head(tmp_path / "head")), plain_runner(target)
    chunks = [Chunk(TOKENS, 0, BLOCKS, 3), Chunk([5, 6], 0, [0], 1)]
    wanting = [chunks[0], Chunk([5, 6], 0, [0], 1, wants_features=True)]
    logits = plain.forward(chunks)
    torch.testing.assert_close(runner.forward(chunks), logits, rtol=0, atol=0)
    assert not features(runner, 0, 15).any()
    torch.testing.assert_close(runner.forward(wanting), logits, rtol=0, atol=0)
    assert features(runner, 0, 15).any()


def test_padded_steps_make_the_same_features(target: LlamaModel, tmp_path: Path) -> None:
    head = make_head(tmp_path / "head")
    plain, padded = tapped(plain_runner(target), head), tapped(padded_runner(target), head)
    assert isinstance(padded, CpuGraphRunner)
    chunks = [Chunk(TOKENS, 0, BLOCKS, 0, wants_features=True), Chunk([5], 0, [3], 0)]
    plain.forward(chunks)
    padded.prepare()
    without = padded.num_graphs
    padded.verify(chunks, [])
    torch.testing.assert_close(features(padded, 0, 15), features(plain, 0, 15))
    assert padded.num_graphs == without, "the steps with features are prepared too"


def test_a_head_of_another_width_is_refused_by_name(target: LlamaModel, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head", head_config(target_hidden_size=64), head_weights(target_hidden=64))
    with pytest.raises(CheckpointError, match="made for hidden states of 64, and the target's have 32"):
        tapped(plain_runner(target), head)
    deep = make_head(tmp_path / "deep", eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 15, 27]})
    with pytest.raises(CheckpointError, match=r"the target has layers 0\.\.5"):
        tapped(plain_runner(target), deep)
