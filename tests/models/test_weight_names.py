"""Names of tensors and the rows of our parameters match one to one."""

from typing import Any

import pytest
from safetensors import safe_open

from slipstream.models.config import ModelConfig
from slipstream.models.weight_names import weight_slots
from tests.tiny_models import make_checkpoint


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
        {"model_type": "qwen2"},
        {"model_type": "qwen3"},
    ],
)
def test_slots_name_exactly_the_tensors_of_a_checkpoint(config: dict[str, Any], tmp_path: Any) -> None:
    path = make_checkpoint(tmp_path, **config)
    full = {"model_type": "llama", "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64}
    full |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    slots = weight_slots(ModelConfig.from_hf(full | config))
    with safe_open(path / "model.safetensors", framework="pt") as weights:
        shapes = {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    assert {name: slot.shape for name, slot in slots.items()} == shapes


def test_stacked_matrices_do_not_overlap() -> None:
    entries = {"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 12}
    slots = weight_slots(ModelConfig.from_hf(entries | {"num_hidden_layers": 1, "num_attention_heads": 2}))
    qkv = [slots[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkv"]
    assert [slot.start for slot in qkv] == [0, 8, 16]
    assert len({slot.parameter for slot in qkv}) == 1
