"""How far a kernel may be from a reference in fp64. Knows no kernel."""

from __future__ import annotations

import torch

RELATIVE_ERROR = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def assert_near(output: torch.Tensor, expected: torch.Tensor) -> None:
    """||output - expected|| <= tolerance of the output's dtype * ||expected||; a NaN never passes."""
    assert output.shape == expected.shape
    difference = output.double().cpu() - expected.double().cpu()
    error = (difference.norm() / expected.double().cpu().norm()).item()
    assert error <= RELATIVE_ERROR[output.dtype], f"relative error {error:.2e} in {output.dtype}"
