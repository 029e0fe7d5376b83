"""An engine's configuration: bad values are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.config import EngineConfig


@pytest.mark.parametrize(
    "field, value",
    [
        ("dtype", "int3"),
        ("block_size", 0),
        ("max_num_seqs", 0),
        ("num_threads", 0),
        ("num_threads", 1025),
        ("kv_memory_bytes", -1),
    ],
)
def test_a_value_out_of_range_is_named(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field} is .*{value}"):
        EngineConfig(model=tmp_path, **{field: value})


@pytest.mark.parametrize("field", ["model", "target_model"])
def test_a_checkpoint_that_does_not_exist_is_named(tmp_path: Path, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is .*nowhere, which does not exist"):
        EngineConfig(**{"model": tmp_path, field: tmp_path / "nowhere"})
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=f"{field} is .*notes.txt, a file; give a folder"):
        EngineConfig(**{"model": tmp_path, field: tmp_path / "notes.txt"})
