"""Reads adapters from the one directory that callers may name. Knows paths and the model; not what is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import InvalidRequest
from slipstream.models.adapter import CONFIG, WEIGHTS, Adapter, load_adapter
from slipstream.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    directory: Path | None = None  # None: nobody may name any
    model: ModelConfig | None = None  # whose adapters they are; None: it takes none
    max_rank: int = 0

    def load(self, path: Path) -> Adapter:
        """From anywhere: for whoever started the service."""
        assert self.model is not None
        return load_adapter(path, self.model, self.max_rank)

    def load_allowed(self, path: str) -> Adapter:
        return self.load(self.allowed(path))

    def allowed(self, path: str) -> Path:
        """The folder that a caller names, links followed. InvalidRequest unless it is inside the directory."""
        if self.directory is None:
            raise InvalidRequest("adapters cannot be loaded by name here; start the drafter with --adapters-dir")
        root = self.directory.resolve()
        folder = root / path
        for place in (folder, folder / CONFIG, folder / WEIGHTS):
            if "\0" in path or root not in place.resolve().parents:
                raise InvalidRequest(f"path is {path!r}; it must be a folder inside the drafter's --adapters-dir")
        return folder.resolve()
