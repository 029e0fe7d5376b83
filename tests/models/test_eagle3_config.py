"""A head's configuration is read with the format's defaults, and what cannot be is named."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.models.eagle3_config import Eagle3Config
from tests.models.eagle3_heads import head_config


def test_features_come_from_the_states_entering_a_low_a_middle_and_a_high_layer() -> None:
    config = Eagle3Config.from_hf(head_config())
    assert config.tapped_layers(30) == (2, 15, 27)
    assert config.projected_size == 3 * 32
    assert not config.norm_before_residual


def test_stored_layers_win_over_the_usual_ones() -> None:
    config = Eagle3Config.from_hf(head_config(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 4, 9]}))
    assert config.tapped_layers(30) == (1, 4, 9)
    with pytest.raises(ValueError, match=r"is \[1, 4, 9\]; the target has layers 0\.\.7"):
        config.tapped_layers(8)


def test_a_head_without_auxiliary_states_takes_the_last_one() -> None:
    config = Eagle3Config.from_hf(head_config(eagle_config={"use_aux_hidden_state": False}, target_hidden_size=64))
    assert config.tapped_layers(30) == (30,)
    assert config.projected_size == 64


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"architectures": ["LlamaForCausalLM"]}, "architectures is"),
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2; an EAGLE-3 head has 1"),
        ({"draft_vocab_size": 321}, "draft_vocab_size is 321; it must be in 1..320"),
        ({"attention_bias": True}, "an EAGLE-3 head has no biases"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2]}}, "it must name 3 layers"),
        ({"eagle_config": 5}, "eagle_config is 5; it must be an object"),
        ({"target_hidden_size": -1}, "target_hidden_size is -1"),
    ],
)
def test_a_value_that_no_head_has_is_named(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Eagle3Config.from_hf(head_config() | entries)
