"""The entries of config.json that make a draft LM draft in parallel. Knows the file; knows no model."""

from __future__ import annotations

from pathlib import Path

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import read_json

MASK_TOKEN = "pard_token"  # stands where a token is to be drafted
TYPE = "spd_type"
PARD = "pard"


def pard_entries(mask_token: int) -> dict[str, object]:
    return {MASK_TOKEN: mask_token, TYPE: PARD}


def read_mask_token(folder: Path) -> int:
    """Raises CheckpointError if the model in `folder` was not made to draft in parallel."""
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(
            f"{folder}: is no folder with a config.json, whose {MASK_TOKEN!r} parallel drafting needs"
        )
    entries = read_json(file)
    mask_token, vocab_size = entries.get(MASK_TOKEN), entries.get("vocab_size")
    if entries.get(TYPE, PARD) != PARD:
        raise CheckpointError(f"{file}: {TYPE} is {entries[TYPE]!r}; the proposer {PARD} needs {PARD!r}")
    if type(mask_token) is not int or type(vocab_size) is not int or not 0 <= mask_token < vocab_size:
        raise CheckpointError(
            f"{file}: {MASK_TOKEN} is {mask_token!r}; it must be an id below vocab_size, as `slipstream train pard` "
            "writes it. A model that was not trained so drafts with --proposer draft_model"
        )
    return mask_token
