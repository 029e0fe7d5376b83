"""Which version this is. Knows the installed package; a source tree that is run without installation has none."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Final

NOT_INSTALLED: Final = "not-installed"


@cache
def version() -> str:
    """Read once: who asks a service for its model asks every two seconds."""
    try:
        return metadata.version("slipstream")
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED
