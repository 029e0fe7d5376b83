"""What can be told to be wrong before a target has written for minutes. Knows settings and files; loads no weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from slipstream.models.config import ModelConfig
from slipstream.models.loader import load_config, open_checkpoint
from slipstream.training.settings import ChatSettings
from slipstream.training.state import as_settings, check_state


class Places(Protocol):
    """Folders that every training has."""

    @property
    def target(self) -> Path: ...

    @property
    def run(self) -> Path: ...

    @property
    def out(self) -> Path: ...


class Settings(Protocol):
    """Those that every training has."""

    @property
    def batch(self) -> int: ...


def check_first(places: Places, chat: ChatSettings, settings: Settings) -> ModelConfig:
    """The target's configuration. Raises ValueError or CheckpointError for what this training cannot end with."""
    target = load_config(open_checkpoint(places.target))
    for folder in (places.run, places.out):
        _require_writable(folder)
    check_state(places.run / "state", as_settings(settings))
    if chat.length > target.max_position_embeddings:
        raise ValueError(f"length is {chat.length}; it must be at most {target.max_position_embeddings}, the target's")
    if (num_rows := max(1, chat.chat_tokens // chat.length)) < settings.batch:
        raise ValueError(
            f"chat_tokens is {chat.chat_tokens}, {num_rows} rows of {chat.length}: fewer than a batch of "
            f"{settings.batch}; write more or lower --batch"
        )
    return target


def _require_writable(folder: Path) -> None:
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"{folder}: {nearest} is no folder that can be written to")
