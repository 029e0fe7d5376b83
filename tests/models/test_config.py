"""What config.json says of a model, and what it leaves out."""

import pytest

from slipstream.models.config import ModelConfig, RopeConfig

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def test_what_config_json_leaves_out_gets_the_familys_defaults() -> None:
    config = ModelConfig.from_hf(LLAMA)
    assert (config.num_kv_heads, config.head_dim, config.qkv_bias, config.qk_norm) == (4, 16, False, False)
    assert config.rope == RopeConfig(theta=10000.0, kind="default")


def test_each_family_has_its_switches() -> None:
    qwen2 = ModelConfig.from_hf(LLAMA | {"model_type": "qwen2"})
    assert (qwen2.qkv_bias, qwen2.output_bias) == (True, False)
    qwen3 = ModelConfig.from_hf(LLAMA | {"model_type": "qwen3"})
    assert (qwen3.qk_norm, qwen3.head_dim, qwen3.qkv_bias) == (True, 128, False)
    biased = ModelConfig.from_hf(LLAMA | {"attention_bias": True, "mlp_bias": True})
    assert (biased.qkv_bias, biased.output_bias, biased.mlp_bias) == (True, True, True)


def test_rope_is_read_in_the_old_and_in_the_new_style() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    old = LLAMA | {"rope_theta": 500000.0, "rope_scaling": scaling | {"rope_type": "llama3"}}
    new = LLAMA | {"rope_parameters": scaling | {"rope_type": "llama3", "rope_theta": 500000.0}}
    older = LLAMA | {"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 2}}
    expected = RopeConfig(theta=500000.0, kind="llama3", factor=8.0, original_max_position=64)
    assert ModelConfig.from_hf(old).rope == ModelConfig.from_hf(new).rope == expected
    assert ModelConfig.from_hf(older).rope == RopeConfig(theta=500000.0, kind="linear", factor=2.0)


def test_end_tokens_come_from_the_generation_config_first() -> None:
    entries = LLAMA | {"eos_token_id": 5}
    assert ModelConfig.from_hf(entries).eos_token_ids == (5,)
    assert ModelConfig.from_hf(entries, {"eos_token_id": [7, 9]}).eos_token_ids == (7, 9)
    assert ModelConfig.from_hf(LLAMA).eos_token_ids == ()


def test_a_window_counts_only_where_the_family_uses_it() -> None:
    window = LLAMA | {"sliding_window": 32}
    assert ModelConfig.from_hf(window | {"model_type": "mistral"}).sliding_window == 32
    assert ModelConfig.from_hf(window | {"model_type": "qwen2"}).sliding_window == 0
    assert ModelConfig.from_hf(window | {"model_type": "qwen2", "use_sliding_window": True}).sliding_window == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope scaling 'yarn'"),
        ({"num_key_value_heads": 3}, "multiple of num_kv_heads 3"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"vocab_size": 1e30}, "vocab_size is 1000000000000000019884624838656; it must be in"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rope_theta": -1}, "theta is -1.0; it must be > 0"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor is 0.0"),
        ({"rope_scaling": {"rope_type": "llama3", "high_freq_factor": 1}}, "low_freq_factor is 1.0; it must be <"),
        ({"eos_token_id": [2, None]}, r"eos_token_id is \[2, None\]; it must be a token id"),
        ({"eos_token_id": "2"}, "eos_token_id is '2'"),
    ],
)
def test_an_unsupported_value_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_hf(LLAMA | change)


def test_a_missing_entry_is_named() -> None:
    with pytest.raises(ValueError, match=r"vocab_size.* missing"):
        ModelConfig.from_hf({name: value for name, value in LLAMA.items() if name != "vocab_size"})
