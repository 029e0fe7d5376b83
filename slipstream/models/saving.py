"""Writes tensors to a safetensors file. Knows what a disk can refuse; nothing of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file


def save_weights(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Raises OSError naming the file."""
    try:
        save_file(dict(tensors), file, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise OSError(f"{file}: cannot be written: {error}") from error
    file.chmod(0o644)  # safetensors makes it readable by its owner only
