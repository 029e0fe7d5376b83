"""A draft model on a tritonserver: found, asked, lost, found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from gateway.peers import tritonserver
from gateway.peers.tritonserver import Lost, Refused, TritonServer, TritonServerConfig, tritonserver_config
from tests.gateway.fake_tritonserver import FakeTritonServer, Script
from tests.gateway.fakes import eventually
from tests.wire.certificates import Authority

TEXT = (1, 2, 3, 4, 5, 6)


class Asked:
    """The client under test, looking for the fake."""

    def __init__(self, fake: FakeTritonServer, config: TritonServerConfig | None = None) -> None:
        self.outcomes: list[str] = []
        self.server = TritonServer(config or fake.config, self.outcomes.append)
        self._running = asyncio.create_task(self.server.run())

    async def found(self) -> TritonServer:
        await eventually(lambda: self.server.available, 10)
        return self.server

    async def close(self) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running


@pytest.fixture
async def fake() -> AsyncIterator[FakeTritonServer]:
    server = FakeTritonServer(Script(TEXT))
    await server.start()
    yield server
    await server.die()


@pytest.fixture
async def asked(fake: FakeTritonServer) -> AsyncIterator[Asked]:
    one = Asked(fake)
    yield one
    await one.close()


async def test_it_says_what_follows_the_tokens_given(fake: FakeTritonServer, asked: Asked) -> None:
    server = await asked.found()
    assert await server.draft([1, 2], 3) == (3, 4, 5)
    assert fake.calls == [((1, 2), 3)]
    assert asked.outcomes == ["answered"]
    assert server.times.seconds_of_tokens(3, 1.0) == 0.0  # one call tells no shares apart


async def test_a_server_that_died_is_lost_complained_of_once_and_found_again(
    fake: FakeTritonServer, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    server = await asked.found()
    await fake.die()
    with pytest.raises(Lost):
        await server.draft(TEXT[:2], 1)
    for _ in range(2):
        with pytest.raises(Lost, match="is away"):
            await server.draft(TEXT[:2], 1)
    await eventually(lambda: asked.outcomes.count("lost") >= 2)  # looked for, and not there
    await fake.start()
    await asked.found()
    assert await server.draft(TEXT[:2], 1) == (3,)
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said
    assert len(set(said)) == len(said)


async def test_nobody_is_asked_before_the_model_is_loaded(
    fake: FakeTritonServer, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    fake.has_model = False
    await eventually(lambda: asked.outcomes == ["lost"])
    assert not asked.server.available
    assert "has not loaded the model" in caplog.text
    fake.has_model = True
    await asked.found()


async def test_a_server_that_does_not_answer_in_time_is_lost(fake: FakeTritonServer) -> None:
    asked = Asked(fake, replace(fake.config, call_seconds=0.2))
    server = await asked.found()
    fake.may_answer.clear()
    with pytest.raises(Lost, match="DEADLINE_EXCEEDED"):
        await server.draft([1, 2], 3)
    assert not server.available
    await asked.close()


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL])
async def test_a_sequence_that_the_server_refuses_is_no_loss_of_the_server(
    fake: FakeTritonServer, asked: Asked, code: grpc.StatusCode
) -> None:
    server = await asked.found()
    fake.error = code
    with pytest.raises(Refused, match=r"as it was told to$"):
        await server.draft([1, 2], 3)
    assert server.available
    assert asked.outcomes == ["refused"]


async def test_a_model_with_other_tensors_is_refused_by_name(fake: FakeTritonServer, asked: Asked) -> None:
    server = await asked.found()
    fake.dtype = np.float32
    with pytest.raises(Refused, match="output_ids is of float32"):
        await server.draft([1, 2], 3)
    fake.dtype = np.int8  # three bytes are no three INT32
    with pytest.raises(Refused, match="output_ids cannot be read"):
        await server.draft([1, 2], 3)
    fake.output = "text_output"
    with pytest.raises(Refused, match="no tensor 'output_ids'"):
        await server.draft([1, 2], 3)


async def test_pauses_grow_until_the_server_answers(fake: FakeTritonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tritonserver, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(tritonserver, "LONGEST_PAUSE", 0.04)
    fake.has_model = False
    asked = Asked(fake)
    await eventually(lambda: len(asked.outcomes) >= 4)
    assert asked.server._pause == 0.04
    fake.has_model = True
    await (await asked.found()).draft([1, 2], 1)
    assert asked.server._pause == 0.01
    await asked.close()


async def test_it_is_called_by_tls_and_only_if_its_certificate_is_of_the_right_ca(tmp_path: Path) -> None:
    ours, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    fake = FakeTritonServer(Script(TEXT), ours.server())
    await fake.start()
    right, wrong = (Asked(fake, replace(fake.config, tls=one.client())) for one in (ours, stranger))
    assert await (await right.found()).draft([1, 2], 1) == (3,)
    await eventually(lambda: wrong.outcomes)
    assert not wrong.server.available
    for asked in (right, wrong):
        await asked.close()
    await fake.die()


def test_half_of_what_is_needed_is_told_by_name() -> None:
    assert tritonserver_config("", "", None) is None
    with pytest.raises(ValueError, match="tritonserver-model is empty"):
        tritonserver_config("one:8001", "", None)
    with pytest.raises(ValueError, match="tritonserver is empty"):
        tritonserver_config("", "draft", None)
    with pytest.raises(ValueError, match="tritonserver holds 'one'"):
        tritonserver_config("one", "draft", None)
    with pytest.raises(ValueError, match="one host:port"):
        tritonserver_config("dns:///one:8001", "draft", None)
    with pytest.raises(ValueError, match="max_calls is 0"):
        TritonServerConfig(address="one:8001", model="draft", max_calls=0)
