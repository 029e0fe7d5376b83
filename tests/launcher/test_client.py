"""The client: pieces of text by token, metadata, and errors in our own words. The gateway is a scripted one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from launcher.client import Completion, chat_prompt, connect, pieces
from slipstream import errors
from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

MESSAGES = (
    pb.GenerateResponse(text="Hello wor", token_ids=[1, 2], drafted=[True, False], text_lengths=[6, 3]),
    pb.GenerateResponse(
        text="ld", token_ids=[3], drafted=[True], text_lengths=[2], finish_reason=exchange_pb2.FINISH_REASON_STOP
    ),
)


class ScriptedGateway(rpc.GenerationServicer):
    def __init__(self) -> None:
        self.keys: list[str] = []
        self.cancelled = futures.Future[bool]()

    def Generate(self, request: pb.GenerateRequest, context: Any) -> Iterator[pb.GenerateResponse]:
        self.keys += [value for name, value in context.invocation_metadata() if name == "authorization"]
        if request.model == "unknown":
            context.abort(grpc.StatusCode.NOT_FOUND, "model 'unknown' is not served here")
        if request.model == "endless":
            context.add_callback(lambda: self.cancelled.set_result(True))
            while not self.cancelled.done():
                yield MESSAGES[0]
        yield from MESSAGES


@pytest.fixture
def gateway() -> Iterator[tuple[ScriptedGateway, str]]:
    servicer = ScriptedGateway()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    rpc.add_GenerationServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(None).wait(5)


def test_an_answer_is_collected_whole(gateway: tuple[ScriptedGateway, str]) -> None:
    completion = Completion()
    with connect(gateway[1]) as client:
        for message in client.generate(pb.GenerateRequest(), 5):
            completion.add(message)
    assert (completion.text, completion.token_ids, completion.drafted) == (
        "Hello world",
        [1, 2, 3],
        [True, False, True],
    )
    assert completion.last.finish_reason == exchange_pb2.FINISH_REASON_STOP


def test_the_key_travels_as_a_bearer(gateway: tuple[ScriptedGateway, str]) -> None:
    with connect(gateway[1], "secret") as client:
        list(client.generate(pb.GenerateRequest(), 5))
    assert gateway[0].keys == ["Bearer secret"]


def test_a_status_comes_back_as_our_exception(gateway: tuple[ScriptedGateway, str]) -> None:
    with connect(gateway[1]) as client, pytest.raises(errors.UnknownModel, match="model 'unknown' is not served here"):
        list(client.generate(pb.GenerateRequest(model="unknown"), 5))


def test_nobody_listening_is_unavailable() -> None:
    with connect("127.0.0.1:1") as client, pytest.raises(errors.Unavailable, match="no gateway answers at 127"):
        list(client.generate(pb.GenerateRequest(), 5))


def test_leaving_early_cancels_the_call(gateway: tuple[ScriptedGateway, str]) -> None:
    with connect(gateway[1]) as client:
        stream = client.generate(pb.GenerateRequest(model="endless"), 5)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert gateway[0].cancelled.result(timeout=5)


def test_pieces_follow_the_tokens_and_keep_every_character() -> None:
    message = pb.GenerateResponse(text="añb tail", drafted=[True, False, True], text_lengths=[1, 0, 2])
    assert list(pieces(message)) == [("a", True), ("", False), ("ñb", True), (" tail", False)]


def test_a_gateway_that_says_no_lengths_loses_colour_only() -> None:
    assert list(pieces(pb.GenerateResponse(text="abc", drafted=[True]))) == [("abc", False)]


def test_a_chat_prompt_may_have_a_system_message() -> None:
    roles = [message.role for message in chat_prompt("hi", "be brief").chat.messages]
    assert roles == ["system", "user"]


@pytest.mark.parametrize("key", ["käse", "a\nb"])
def test_what_can_be_no_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as refused, connect("127.0.0.1:1", key):
        pass
    assert key not in str(refused.value)


def test_an_address_must_be_one() -> None:
    with pytest.raises(ValueError, match="host:port"), connect(""):
        pass
