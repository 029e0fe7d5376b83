"""Matrices stored as int8 rows, a scale for each. Knows tensors and how files name them; no model.

NAME.int8   int8 [rows, columns]   one matrix of the model by its usual name
NAME.scale  fp16 [rows]            row i of the matrix is int8[i] * scale[i]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import torch

from slipstream.errors import CheckpointError

INT8: Final = ".int8"
SCALE: Final = ".scale"


def quantize_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, columns] fp32 to int8 of the same shape and fp16 [rows]."""
    scale = (weight.abs().amax(1) / 127).clamp_min(2.0**-24).half()
    return (weight / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def dequantize_rows(quantized: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return quantized.float() * scale.float()[:, None]


def as_int8_rows(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """What is stored of one matrix."""
    quantized, scale = quantize_rows(weight.detach().cpu().float())
    return {name + INT8: quantized, name + SCALE: scale}


def whole(entries: Iterable[tuple[str, Path, torch.Tensor]]) -> Iterator[tuple[str, Path, torch.Tensor]]:
    """Stored tensors (name, file, values), matrices put together under their usual names; others as they are."""
    stored = {name: (file, tensor) for name, file, tensor in entries}
    for name, (file, tensor) in stored.items():
        if name.endswith(INT8):
            matrix = name.removesuffix(INT8)
            if matrix + SCALE not in stored:
                raise CheckpointError(f"{file}: tensor {matrix + SCALE} is missing")
            scale = stored[matrix + SCALE][1]
            if tensor.dim() != 2 or scale.shape != tensor.shape[:1]:
                raise CheckpointError(f"{file}: tensor {matrix + SCALE} must hold one number for each row of {name}")
            yield matrix, file, dequantize_rows(tensor, scale)
        elif not name.endswith(SCALE):
            yield name, file, tensor
