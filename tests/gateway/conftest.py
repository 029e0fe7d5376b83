"""Scripted peers that note what they are told in one journal."""

from __future__ import annotations

import pytest

from tests.gateway.fakes import FakeDrafter, FakeVerifier, Journal


@pytest.fixture
def journal() -> Journal:
    return []


@pytest.fixture
def verifier(journal: Journal) -> FakeVerifier:
    return FakeVerifier(journal)


@pytest.fixture
def drafter(journal: Journal) -> FakeDrafter:
    return FakeDrafter(journal)
