"""A captured loop of an EAGLE-3 head draws what the same loop draws on a CPU, from features and from its own output."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.draft_buffers import Ints, LoopRow, LoopSize
from slipstream.engine.draft_loop import DraftLoop
from slipstream.engine.eagle3_step import Eagle3Step
from slipstream.engine.feature_buffers import FeatureBuffers
from slipstream.engine.graph_capture import Capture, GraphCapture
from slipstream.kernels.draft_choice import TOKEN, Drafting, Kind, settings_of
from slipstream.models.config import ModelConfig
from slipstream.models.eagle3 import Eagle3Model
from slipstream.models.eagle3_config import Eagle3Config
from slipstream.request import SamplingParams

BLOCK_SIZE, BLOCKS, MAX_MODEL_LEN, STEPS, START = 16, 2, 32, 4, 6
LAYER = ModelConfig(
    model_type="llama", vocab_size=320, hidden_size=64, intermediate_size=96, num_layers=1, num_heads=4, num_kv_heads=2,
    head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5,
)  # fmt: skip
CONFIG = Eagle3Config(layer=LAYER, draft_vocab_size=320, target_hidden_size=64)
GREEDY = settings_of(SamplingParams(temperature=0.0), Kind.GREEDY, 0, 0)
SIZE = LoopSize(2, STEPS)


class RunCapture:
    num_bytes, is_full = 0, False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


def make_model() -> Eagle3Model:
    torch.manual_seed(0)
    model = Eagle3Model(CONFIG, torch.float32)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.15)
    return model


def make_rows() -> list[LoopRow]:
    """A prompt that a target has seen, then two more tokens of it: no padding, which a CPU has no slot for."""
    rng = np.random.default_rng(3)
    features = [torch.from_numpy(rng.normal(size=(2, 64))).bfloat16().view(torch.int16).numpy() for _ in range(2)]
    return [
        LoopRow((7 + i, 9), START, range(BLOCKS * i, BLOCKS * (i + 1)), STEPS, GREEDY, features[i].view(np.uint16))
        for i in range(2)
    ]


def draw(model: Eagle3Model, capture: Capture) -> tuple[Ints, Ints]:
    """Of a loop that begins with features, and of one that goes on with what the head put out."""
    device = model.embedding.device
    cache = KVCache(LAYER, 2 * BLOCKS, BLOCK_SIZE, torch.float32, device)
    step = Eagle3Step(model, cache, torch.zeros(2 * BLOCKS + 1, BLOCK_SIZE, 64, device=device), MAX_MODEL_LEN)
    for position in range(1, START):
        tables = torch.arange(2 * BLOCKS, device=device).view(2, BLOCKS)
        step(
            torch.tensor([position, 3 * position], device=device), torch.full((2,), position + 1, device=device), tables
        )
    drafting = Drafting(torch.arange(320, dtype=torch.int32, device=device), True, 16, 5)
    loop = DraftLoop(
        step, step, model.logits, step.copy_blocks, drafting, sizes=[SIZE], max_blocks=BLOCKS, capture=capture,
        features=FeatureBuffers(step, SIZE, 64, device),
    )  # fmt: skip
    rows = make_rows()
    first = loop.launch(rows)()
    ends = [row.start + 2 + STEPS - 1 for row in rows]
    again = [
        LoopRow((int(first[-2, i, TOKEN]), int(first[-1, i, TOKEN])), ends[i] - 1, row.block_ids, STEPS, GREEDY)
        for i, row in enumerate(rows)
    ]
    return first, loop.launch(again)()


@pytest.mark.gpu
@torch.inference_mode()
def test_a_captured_loop_of_a_head_draws_the_tokens_of_one_on_a_cpu(device: torch.device) -> None:
    model = make_model()
    expected = draw(copy.deepcopy(model), RunCapture())
    drawn = draw(model.to(device), GraphCapture(device, 1 << 30))
    for got, right in zip(drawn, expected, strict=True):
        np.testing.assert_array_equal(got[:, :, TOKEN], right[:, :, TOKEN])


@torch.inference_mode()
def test_features_decide_what_is_drawn() -> None:
    with_features, _ = draw(make_model(), RunCapture())
    assert len(np.unique(with_features[:, :, TOKEN])) > 2
