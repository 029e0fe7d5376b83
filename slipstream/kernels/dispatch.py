"""Says when a fused GPU kernel takes the place of the torch reference. Imports no Triton: a CPU never pays for it."""

from __future__ import annotations

import torch


def fused(x: torch.Tensor) -> bool:
    """On a GPU, and serving: the fused kernels have no backward, so training keeps to the references.

    What training compiles cannot ask for the mode: each question would cut the compiled code in two.
    """
    return x.is_cuda and not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
