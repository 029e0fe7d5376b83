"""Bad settings are refused, naming field and value."""

from __future__ import annotations

import pytest

from slipstream.training.settings import ChatSettings, DraftSettings, LoraSettings, PardSettings


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_layers", 0, "num_layers is 0"),
        ("draft_vocab_size", -1, "draft_vocab_size is -1"),
        ("train_tokens", 0, "train_tokens is 0"),
        ("loss", "mse", "loss is 'mse'; it must be one of kl, lk_hybrid"),
        ("temperature", 0.0, "temperature is 0.0"),
        ("learning_rate", 0.0, "learning_rate is 0.0"),
        ("weight_decay", -0.1, "weight_decay -0.1"),
    ],
)
def test_a_draft_setting_out_of_range_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DraftSettings(**{field: value})  # type: ignore[arg-type]


def test_a_chat_setting_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match="length is 0"):
        ChatSettings(length=0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_parallel", 0, "num_parallel is 0"),
        ("mask_token", -1, "mask_token is -1"),
        ("loss", "mse", "loss is 'mse'"),
        ("learning_rate", 0.0, "learning_rate is 0.0"),
    ],
)
def test_a_parallel_setting_out_of_range_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PardSettings(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("rank", 0, "rank is 0"), ("num_held_out", 0, "num_held_out is 0"), ("modules", (), "modules is empty")],
)
def test_an_adapter_setting_out_of_range_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoraSettings(**{field: value})  # type: ignore[arg-type]
