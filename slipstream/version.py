"""Which version this is. Knows the installed package; a source tree that is run without installation has none."""

from __future__ import annotations

from importlib import metadata
from typing import Final

NOT_INSTALLED: Final = "not-installed"


def version() -> str:
    try:
        return metadata.version("slipstream")
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED
