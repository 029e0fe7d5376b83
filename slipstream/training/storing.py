"""What becomes of a file that cannot be written: an error that names the place. Knows no formats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def storing(place: Path) -> Iterator[None]:
    """Raises OSError naming `place`. What was stored before is still whole, so the training goes on from there."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise OSError(f"{place}: cannot be written ({error}); with room there, the same command goes on") from error
