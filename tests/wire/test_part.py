"""Two parts share a port as one, and only a process's first failure counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from slipstream.wire.part import Failure, Part


def part(name: str, registered: list[str], *, drains: bool) -> Part:
    async def drain() -> None:
        registered.append(f"{name} drained")

    return Part(
        service_names=(name,),
        register=lambda server: registered.append(f"{name} on {server.port}"),
        drain=drain if drains else None,
    )


async def test_beside_another_both_register_on_one_server_and_the_other_one_drains() -> None:
    done: list[str] = []
    both = part("drafter", done, drains=False).beside(part("verifier", done, drains=True))
    assert both.service_names == ("verifier", "drafter")
    both.register(SimpleNamespace(port=7))  # type: ignore[arg-type]
    assert both.drain is not None
    await both.drain()
    assert done == ["verifier on 7", "drafter on 7", "verifier drained"]


async def test_the_first_failure_is_the_one_that_is_raised() -> None:
    failure = Failure()
    assert not failure.happened
    failure.report(ValueError("the cause"))
    failure.report(KeyError("what followed"))
    assert failure.happened
    with pytest.raises(ValueError, match="the cause"):
        await asyncio.wait_for(failure.future, 1)
