"""A drafter's configuration: bad values are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafter_svc.config import AdapterSettings, DrafterConfig, default_max_rows
from slipstream.config import EngineConfig

ENGINE = EngineConfig(model=Path(__file__).parent, max_num_batched_tokens=32)


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_rows", 0),
        ("max_rows", 33),
        ("max_prefill_tokens", 0),
        ("num_kept", 0),
        ("num_kept", 5000),
        ("max_branches", -1),
        ("loop_steps", 17),
        ("draft_step", "none"),
    ],
)
def test_a_value_out_of_range_is_named(field: str, value: int | str) -> None:
    with pytest.raises(ValueError, match=f"{field}.*{value}"):
        DrafterConfig(engine=ENGINE, **{field: value})  # type: ignore[arg-type]


def test_the_token_budget_of_a_step_is_the_engines() -> None:
    assert DrafterConfig(engine=ENGINE, max_rows=32).row_limits.max_tokens == 32


def test_a_gpu_drafts_more_rows_than_a_cpu() -> None:
    assert default_max_rows("cuda:0") > default_max_rows("cpu")


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"directory": Path("/absent")}, "adapters_dir is /absent"),
        ({"most": 0}, "max_adapters is 0"),
        ({"max_rank": 257}, "max_adapter_rank is 257"),
        ({"most": 1, "at_start": (("a", Path("a")), ("b", Path("b")))}, "2 adapters are named and max_adapters is 1"),
    ],
)
def test_adapter_settings_out_of_range_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AdapterSettings(**fields)


def test_only_a_draft_model_takes_adapters() -> None:
    adapters = AdapterSettings(at_start=(("a", Path("a")),))
    with pytest.raises(ValueError, match="proposer is 'pard', which takes no adapters"):
        DrafterConfig(engine=ENGINE, proposer="pard", adapters=adapters)
