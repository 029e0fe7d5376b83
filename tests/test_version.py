"""The version that services tell."""

from __future__ import annotations

from importlib import metadata

import pytest

from slipstream.version import NOT_INSTALLED, version


def test_it_is_that_of_the_installed_package() -> None:
    assert version() == metadata.version("slipstream")


def test_a_source_tree_that_is_not_installed_runs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    assert version.__wrapped__() == NOT_INSTALLED
