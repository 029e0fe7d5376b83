"""A list of adapters comes through the wire as it was."""

from __future__ import annotations

from slipstream.exchange import AdapterInfo, AdapterList
from slipstream.wire.adapters import adapter_list_from_wire, adapter_list_to_wire
from slipstream.wire.v1 import drafter_pb2 as pb


def test_a_list_comes_through_as_it_was() -> None:
    held = AdapterList((AdapterInfo("legal", "a/legal", 8, 3), AdapterInfo("code", "code", 16, 1, True)), 4, 1 << 33)
    message = pb.AdapterList.FromString(adapter_list_to_wire(held).SerializeToString())
    assert adapter_list_from_wire(message) == held
