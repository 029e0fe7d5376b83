"""Who is noted to have been refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.gateway import Gateway
from gateway.refusals import refusing
from slipstream.errors import InvalidRequest


class Notes:
    def __init__(self) -> None:
        self.refused: list[tuple[Any, ...]] = []

    def refuse(self, *what: Any) -> None:
        self.refused.append(what)


def fail(notes: Notes, tenant: str, error: Exception) -> None:
    with refusing(cast(Gateway, notes), "r1") as caller:
        caller.tenant = tenant
        raise error


def test_what_fails_is_noted_under_the_caller_as_far_as_it_is_known_and_goes_on() -> None:
    notes, error = Notes(), InvalidRequest("no")
    for name in ("", "acme"):
        with pytest.raises(InvalidRequest):
            fail(notes, name, error)
    assert notes.refused == [("r1", "", error), ("r1", "acme", error)]


def test_what_is_read_without_a_mistake_is_not_noted() -> None:
    notes = Notes()
    with refusing(cast(Gateway, notes), "r1", "acme"):
        pass
    assert not notes.refused
