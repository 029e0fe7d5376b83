"""Asks drafters about their adapters, and tells people. Knows the three calls; not the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TypeAlias

import grpc
from rich.box import SIMPLE_HEAD
from rich.table import Table

from slipstream.errors import Unavailable
from slipstream.exchange import AdapterList
from slipstream.wire import status
from slipstream.wire.adapters import adapter_list_from_wire
from slipstream.wire.channel import open_blocking_channel
from slipstream.wire.tls import ClientTls
from slipstream.wire.v1 import drafter_pb2 as pb
from slipstream.wire.v1 import drafter_pb2_grpc as rpc

SECONDS = 60.0  # of one call; a drafter reads files of some megabytes
Call: TypeAlias = Callable[[rpc.DrafterStub], pb.AdapterList]


def load(name: str, path: str) -> Call:
    return lambda stub: stub.LoadAdapter(pb.LoadAdapterRequest(name=name, path=path), timeout=SECONDS)


def unload(name: str) -> Call:
    return lambda stub: stub.UnloadAdapter(pb.UnloadAdapterRequest(name=name), timeout=SECONDS)


def listed() -> Call:
    return lambda stub: stub.ListAdapters(pb.ListAdaptersRequest(), timeout=SECONDS)


def ask(address: str, call: Call, tls: ClientTls | None = None) -> AdapterList:
    """What the drafter holds after the call. Its refusals raise as they were."""
    with open_blocking_channel(address, tls) as channel:
        try:
            return adapter_list_from_wire(call(rpc.DrafterStub(channel)))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise Unavailable(f"no drafter answers at {address}; give its address with --drafter") from error
            text = f"drafter {address}: {error.details() or error.code().name}"
            raise status.from_status(status.number(error.code()), text) from error


def as_json_text(held: Mapping[str, AdapterList]) -> str:
    return json.dumps({"drafters": [{"address": address, **asdict(one)} for address, one in held.items()]})


def as_table(held: Mapping[str, AdapterList]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="\n".join(map(_room, held, held.values())))
    for name in ("drafter", "adapter", "folder", "rank", "sequences", ""):
        table.add_column(name, justify="right" if name in ("rank", "sequences") else "left")
    for address, one in held.items():
        for info in one.adapters:
            going = "ends with them" if info.draining else ""
            table.add_row(address, info.name, info.path, str(info.rank), str(info.num_sequences), going)
    return table


def _room(address: str, held: AdapterList) -> str:
    if not held.max_adapters:
        return f"{address} takes no adapters"
    room = held.max_adapters * held.bytes_per_adapter / 2**20
    return f"{address}: room for {held.max_adapters}, {room:.1f} MiB"
