"""Where kernel tests run, and an interpreter that takes loop bounds from tensors under numpy >= 2.4."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from triton.runtime import interpreter

original_patch = interpreter._patch_lang_tensor


def patch_lang_tensor(tensor: Any, scope: Any) -> None:
    """Triton 3.6 asks int() of arrays of one element, which numpy no longer answers."""
    original_patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


@pytest.fixture(autouse=True)
def _loop_bounds_from_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_lang_tensor)


@pytest.fixture
def device() -> torch.device:
    """The GPU if kernels are compiled, the CPU if they are interpreted."""
    return torch.device("cpu" if triton.knobs.runtime.interpret else "cuda")
