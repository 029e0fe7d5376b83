"""Orders reach the drafter's thread with a number, and its answer reaches the caller of that number."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from drafter_svc.adapter_calls import AdapterCalls
from drafter_svc.adapter_folder import AdapterFolder
from drafter_svc.adapters import AdapterAnswer, AdapterOrder, ListAdapters, LoadAdapter, UnloadAdapter
from slipstream.errors import InvalidRequest, UnknownModel
from slipstream.exchange import AdapterInfo, AdapterList
from slipstream.models.loader import load_config, open_checkpoint
from tests.tiny_adapters import make_adapter
from tests.tiny_models import make_checkpoint

HELD = AdapterList((AdapterInfo("legal", "legal", 4),), 4, 100)


@pytest.fixture
def posted() -> list[tuple[int, AdapterOrder]]:
    return []


@pytest.fixture
def calls(posted: list[tuple[int, AdapterOrder]]) -> AdapterCalls:
    return AdapterCalls(lambda number, order: posted.append((number, order)), AdapterFolder(), count(5))


async def asked(call: asyncio.Task[AdapterList], posted: list[tuple[int, AdapterOrder]]) -> tuple[int, AdapterOrder]:
    async with asyncio.timeout(10):
        while not posted and not call.done():
            await asyncio.sleep(0.001)
    return posted.pop()


async def test_each_caller_gets_the_answer_to_its_own_order(
    calls: AdapterCalls, posted: list[tuple[int, AdapterOrder]]
) -> None:
    listing, unloading = asyncio.create_task(calls.listed()), asyncio.create_task(calls.unload("code"))
    await asyncio.sleep(0)
    assert posted == [(5, ListAdapters()), (6, UnloadAdapter("code"))]
    calls.deliver(6, AdapterAnswer(UnknownModel("no code")))
    calls.deliver(5, AdapterAnswer(HELD))
    assert await listing == HELD
    with pytest.raises(UnknownModel, match="no code"):
        await unloading


async def test_files_are_read_before_the_thread_hears_of_them(
    posted: list[tuple[int, AdapterOrder]], tmp_path: Path
) -> None:
    base = make_checkpoint(tmp_path / "base")
    make_adapter(base, tmp_path / "adapters" / "legal")
    folder = AdapterFolder(tmp_path / "adapters", load_config(open_checkpoint(base)), max_rank=8)
    calls = AdapterCalls(lambda number, order: posted.append((number, order)), folder, count())
    call = asyncio.create_task(calls.load("legal", "legal"))
    number, order = await asked(call, posted)
    assert isinstance(order, LoadAdapter)
    assert (order.name, order.path, order.weights.rank) == ("legal", "legal", 4)
    calls.deliver(number, AdapterAnswer(HELD))
    assert await call == HELD


async def test_what_cannot_be_read_is_never_ordered(
    calls: AdapterCalls, posted: list[tuple[int, AdapterOrder]]
) -> None:
    with pytest.raises(InvalidRequest):
        await calls.load("legal", "legal")
    assert posted == []


async def test_an_answer_to_a_caller_that_has_gone_is_dropped(
    calls: AdapterCalls, posted: list[tuple[int, AdapterOrder]]
) -> None:
    call = asyncio.create_task(calls.listed())
    number, _ = await asked(call, posted)
    call.cancel()
    await asyncio.wait([call])
    calls.deliver(number, AdapterAnswer(HELD))
