"""The whole model on a GPU, eager and from a captured graph, says what it says on a CPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.model_runner import ModelRunner
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel

BLOCK_SIZE = 16
SIZES: dict[str, Any] = {
    "vocab_size": 640,
    "intermediate_size": 256,
    "num_layers": 3,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
}
FAMILIES = {
    "llama": ModelConfig(model_type="llama", hidden_size=192, num_heads=3, num_kv_heads=1, head_dim=64, **SIZES),
    "qwen3": ModelConfig(
        model_type="qwen3", hidden_size=128, num_heads=4, num_kv_heads=2, head_dim=128, qk_norm=True, **SIZES
    ),
}
PROMPTS = [Chunk(range(5, 305), 0, range(20), 300), Chunk(range(40, 57), 0, range(20, 24), 17)]
VERIFY = [
    Chunk(range(7, 12), 300, range(20), 5),
    Chunk([3], 17, range(20, 24), 1),
    Chunk(range(90), 0, range(24, 30), 2),
]
RELATIVE_ERROR = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


def make_runner(config: ModelConfig, dtype: torch.dtype) -> ModelRunner:
    torch.manual_seed(0)
    model = LlamaModel(config, dtype)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.1)
    return ModelRunner(model, KVCache(config, 32, BLOCK_SIZE, dtype, torch.device("cpu")))


def moved(runner: ModelRunner, device: torch.device) -> ModelRunner:
    model = copy.deepcopy(runner._model).to(device)
    dtype = model.embedding.dtype
    return ModelRunner(model, KVCache(runner.config, 32, BLOCK_SIZE, dtype, device))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_the_cpu(family: str, dtype: torch.dtype, device: torch.device) -> None:
    on_cpu = make_runner(FAMILIES[family], dtype)
    on_gpu = moved(on_cpu, device)
    for chunks in (PROMPTS, VERIFY):
        expected, logits = on_cpu.forward(chunks), on_gpu.forward(chunks).cpu()
        assert (logits - expected).norm() / expected.norm() < RELATIVE_ERROR[dtype]
        if dtype == torch.float32:
            assert torch.equal(logits.argmax(-1), expected.argmax(-1))


@pytest.mark.gpu
@torch.inference_mode()
def test_a_captured_step_gives_what_an_eager_one_gives(device: torch.device) -> None:
    runner = moved(make_runner(FAMILIES["llama"], torch.float32), device)
    runner.forward(PROMPTS)
    batch = ForwardBatch.build(VERIFY, BLOCK_SIZE, device)
    expected = runner._model(batch, runner.kv_cache)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = runner._model(batch, runner.kv_cache)
    output.zero_()
    graph.replay()
    torch.testing.assert_close(output, expected, rtol=0, atol=0)
