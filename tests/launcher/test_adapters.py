"""Asking a drafter about its adapters: what it says, how it refuses, how it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent import futures
from io import StringIO
from typing import Any

import grpc
import pytest
from rich.console import Console
from typer.testing import CliRunner

from launcher import adapters, run_file
from launcher.cli.adapters import app
from launcher.run_file import Listed
from slipstream.errors import Unavailable, UnknownModel
from slipstream.exchange import AdapterInfo, AdapterList
from slipstream.wire.adapters import adapter_list_to_wire
from slipstream.wire.v1 import drafter_pb2 as pb
from slipstream.wire.v1 import drafter_pb2_grpc as rpc

HELD = AdapterList((AdapterInfo("code", "code", 16, 2, True), AdapterInfo("legal", "team/legal", 8)), 4, 1 << 20)


class ScriptedDrafter(rpc.DrafterServicer):
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.holds = HELD

    def LoadAdapter(self, request: pb.LoadAdapterRequest, context: Any) -> pb.AdapterList:
        self.asked.append(request)
        return adapter_list_to_wire(HELD)

    def UnloadAdapter(self, request: pb.UnloadAdapterRequest, context: Any) -> pb.AdapterList:
        context.abort(grpc.StatusCode.NOT_FOUND, f"adapter {request.name!r} is not loaded here")

    def ListAdapters(self, request: pb.ListAdaptersRequest, context: Any) -> pb.AdapterList:
        return adapter_list_to_wire(self.holds)


@pytest.fixture
def drafter() -> ScriptedDrafter:
    return ScriptedDrafter()


@pytest.fixture
def address(drafter: ScriptedDrafter) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    rpc.add_DrafterServicer_to_server(drafter, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_orders_go_out_as_given_and_the_list_comes_back(address: str, drafter: ScriptedDrafter) -> None:
    assert adapters.ask(address, adapters.load("legal", "team/legal")) == HELD
    assert drafter.asked == [pb.LoadAdapterRequest(name="legal", path="team/legal")]
    assert adapters.ask(address, adapters.listed()) == HELD


def test_a_refusal_names_the_drafter_and_keeps_its_kind(address: str) -> None:
    with pytest.raises(UnknownModel, match=f"{address}: adapter 'mail' is not loaded"):
        adapters.ask(address, adapters.unload("mail"))
    with pytest.raises(Unavailable, match="no drafter answers at"):
        adapters.ask("127.0.0.1:1", adapters.listed())


def test_people_see_who_holds_what_and_the_room_for_it() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(adapters.as_table({"one:1": HELD, "two:2": AdapterList(())}))
    text = console.export_text()
    for words in ("team/legal", "ends with them", "one:1: room for 4, 4.0 MiB", "two:2 takes no adapters"):
        assert words in text


def test_the_command_asks_every_drafter_that_is_named(address: str) -> None:
    result = CliRunner().invoke(app, ["list", "--drafter", address, "--json"])
    assert result.exit_code == 0, result.output
    (told,) = json.loads(result.stdout)["drafters"]
    assert (told["address"], told["adapters"][1]["name"]) == (address, "legal")


def test_without_a_drafter_and_without_a_stack_the_command_says_what_to_give() -> None:
    result = CliRunner().invoke(app, ["unload", "legal", "--target", "127.0.0.1:2"])
    assert isinstance(result.exception, ValueError)
    assert "--drafter" in str(result.exception)


def test_of_drafters_that_are_not_named_those_without_room_are_left_out(
    address: str, drafter: ScriptedDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = [Listed(name="drafter1", address=address), Listed(name="verifier", address="127.0.0.1:2")]
    monkeypatch.setattr(run_file, "read", lambda *_: stack)
    drafter.holds = AdapterList(())
    refused = CliRunner().invoke(app, ["load", "legal", "team/legal"])
    assert isinstance(refused.exception, ValueError)
    assert "takes adapters; start one with --adapters-dir" in str(refused.exception)
    assert not drafter.asked
    drafter.holds = HELD
    assert CliRunner().invoke(app, ["load", "legal", "team/legal"]).exit_code == 0
    assert len(drafter.asked) == 1
