"""Fixtures of the end-to-end tests: the real model, and tenants that differ in who drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.config import default_model_dir

PROPOSERS: dict[str, list[str]] = {
    "none": ["none"],
    "ngram": ["ngram"],
    "draft_model": ["draft_model"],
    "both": ["ngram", "draft_model"],
}


def tenants(mode: str, **settings: Any) -> list[dict[str, Any]]:
    """One tenant per way of drafting, named after it."""
    return [{"name": name, "proposers": proposers, "mode": mode, **settings} for name, proposers in PROPOSERS.items()]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    folder = default_model_dir() / "smollm2-135m-instruct"
    if not folder.exists():
        pytest.fail(f"{folder} does not exist; run `slipstream model fetch`")
    return folder
