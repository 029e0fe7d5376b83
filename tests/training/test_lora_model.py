"""An adapter beside frozen weights: nothing at first, and what the drafter serves in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.model_runner import ModelRunner
from slipstream.kernels.batch import Chunk
from slipstream.models.adapter_slots import AdapterSlots
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.training.lora_model import MODULES, attach, blank_adapter, trained_adapter
from tests.tiny_adapters import only, random_adapter

CPU = torch.device("cpu")
TOKEN_IDS = list(range(5, 25))


def dense_logits(model: LlamaModel) -> torch.Tensor:
    return model.logits(model.forward_dense(torch.tensor([TOKEN_IDS])))[0]


def test_a_blank_adapter_changes_nothing(target: LlamaModel) -> None:
    before = dense_logits(target)
    attach(target, blank_adapter(target.config, 4, 8.0, MODULES, seed=0))
    torch.testing.assert_close(dense_logits(target), before)


@pytest.mark.parametrize("modules", [MODULES, ("k_proj", "gate_proj"), ("v_proj",)])
def test_what_is_trained_is_what_a_drafter_runs(
    target: LlamaModel, target_folder: Path, modules: tuple[str, ...]
) -> None:
    adapter = only(random_adapter(target.config, rank=4, seed=3), *modules)
    attach(target, adapter)
    served = load_model(target_folder, torch.float32, CPU)
    AdapterSlots(served, num_slots=1, max_rank=8).fill(0, adapter)
    runner = ModelRunner(served, KVCache(served.config, 4, 8, torch.float32, CPU))
    logits = runner.forward([Chunk(TOKEN_IDS, 0, [0, 1, 2], len(TOKEN_IDS), adapter=0)])
    torch.testing.assert_close(dense_logits(target), logits, rtol=1e-4, atol=1e-4)


def test_only_the_adapter_is_trained_and_it_comes_out_by_its_names(target: LlamaModel) -> None:
    blank = blank_adapter(target.config, 4, 8.0, ("q_proj", "up_proj"), seed=0)
    master = attach(target, blank)
    trainable = [name for name, parameter in target.named_parameters() if parameter.requires_grad]
    assert len(trainable) == len(master.weights) == 2 * 2 * target.config.num_layers
    assert all(".down." in name or ".up." in name for name in trainable)
    name = "model.layers.2.mlp.up_proj"
    master.weights[f"{name}.lora_B"].fill_(3.0)
    adapter = trained_adapter(blank, master.weights)
    assert adapter.matrices.keys() == blank.matrices.keys()
    assert bool((adapter.matrices[name][1] == 3.0).all())


def test_a_module_that_no_llama_has_is_refused_by_name(target: LlamaModel) -> None:
    with pytest.raises(ValueError, match="modules holds 'lm_head'"):
        blank_adapter(target.config, 4, 8.0, ("q_proj", "lm_head"), seed=0)
