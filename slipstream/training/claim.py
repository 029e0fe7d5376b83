"""What the text of a run folder was written from: text of one origin is not mixed with another's. Knows names, values.

A folder that holds text and no claim is taken as it is: drafters of one target may share text, so it may be a copy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from slipstream.models.llama import LlamaModel

CLAIM_FILE: Final = "text.json"


def claim_folder(folder: Path, origin: Mapping[str, object]) -> None:
    """Raises ValueError naming what is not as it was when the folder's text was begun."""
    file = folder / CLAIM_FILE
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    for name, value in origin.items():
        if before.get(name) != value:
            raise ValueError(
                f"{folder}: its text was written with {name} = {before.get(name)!r}, not {value!r}; "
                "use the same, or another --run folder"
            )


def file_digests(files: Sequence[Path]) -> list[str]:
    """By content, so that a file may be moved."""
    return [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]


def model_digest(model: LlamaModel) -> str:
    """Of the first row of each weight: models that were trained apart differ in it."""
    told = hashlib.sha256()
    for weight in model.state_dict().values():
        told.update(weight[:1].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return told.hexdigest()[:16]
