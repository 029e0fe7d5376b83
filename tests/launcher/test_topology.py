"""A topology: its replicas' addresses and devices, who gets which cores, and parts that do not fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.topology import ONE_PROCESS, GatewayService, ModelService, Topology, num_cores

HERE = Path(__file__).parent


def test_replicas_take_the_next_ports_and_their_own_devices() -> None:
    service = ModelService(listen="h:10", metrics="h:20", replicas=3, devices=("cuda:0", "cuda:1", "cuda:2"))
    assert [service.listen_of(i) for i in range(3)] == ["h:10", "h:11", "h:12"]
    assert [service.metrics_of(i) for i in range(3)] == ["h:20", "h:21", "h:22"]
    assert [service.device_of(i) for i in range(3)] == ["cuda:0", "cuda:1", "cuda:2"]
    assert ModelService(replicas=2).listen_of(1) == "127.0.0.1:0"
    assert ModelService(replicas=2).device_of(1) == "cpu"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"replicas": 0}, "replicas is 0; it must be a whole number in 1..64"),
        ({"dtype": "int3"}, "dtype is 'int3'; it must be one of float32"),
        ({"kv_memory": "512"}, "kv_memory is '512'; it must be a size such as"),
        ({"replicas": 3, "devices": ("cpu", "cpu")}, "devices has 2 entries; it must have 1 or 3"),
        ({"replicas": 2, "listen": "h:65535"}, "listen is 'h:65535'; the port must leave room for 2 replicas"),
        ({"model": Path("/absent")}, "model is /absent; it must be the path of something that exists"),
    ],
)
def test_a_bad_value_is_named_with_its_range(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        ModelService(**fields)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "verifiers is empty"),
        ({"verifiers": (ModelService(),), "drafters": (ModelService(),)}, "drafters without `model`"),
        (
            {"verifiers": (ModelService(listen="h:5", replicas=2),), "gateway": GatewayService(listen="h:6")},
            "'h:6' is given 2 times as an address to listen on",
        ),
        (
            {"verifiers": (ModelService(),), "placement": "one_process"},
            "placement is one_process with 1 verifiers and 0",
        ),
        ({"verifiers": (ModelService(),), "placement": "near"}, "placement is 'near'; it must be one of separate, one"),
    ],
)
def test_parts_that_do_not_fit_together_are_told(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        Topology(**parts)
    assert str(error.value).startswith(said)


def test_a_tritonserver_and_its_model_go_together() -> None:
    with pytest.raises(ValueError, match="tritonserver is 'far:8001' and tritonserver_model ''; give both"):
        GatewayService(tritonserver="far:8001")


def test_a_gateway_may_have_verifiers_elsewhere_only() -> None:
    assert Topology(gateway=GatewayService(verifiers=("far:50051",))).verifiers == ()


def test_a_verifier_alone_gets_every_core_and_beside_a_drafter_one_less() -> None:
    verifier, drafter = ModelService(), ModelService(model=HERE)
    assert Topology(verifiers=(verifier,)).threads_of(verifier) == num_cores()
    beside = Topology(verifiers=(verifier,), drafters=(drafter,))
    assert beside.threads_of(verifier) == max(1, num_cores() - 1)
    assert beside.threads_of(drafter) == 1


def test_a_drafter_with_a_verifiers_values_is_still_a_drafter() -> None:
    verifier, drafter = ModelService(model=HERE), ModelService(model=HERE)
    topology = Topology(verifiers=(verifier,), drafters=(drafter,))
    assert (topology.threads_of(verifier), topology.threads_of(drafter)) == (max(1, num_cores() - 1), 1)


def test_a_drafter_in_its_verifiers_process_has_no_address_to_clash_with() -> None:
    parts: dict[str, Any] = {
        "verifiers": (ModelService(listen="h:5"),),
        "drafters": (ModelService(model=HERE, listen="h:5"),),
    }
    assert Topology(**parts, placement=ONE_PROCESS).drafters == parts["drafters"]
    with pytest.raises(ValueError, match="'h:5' is given 2 times"):
        Topology(**parts)


def test_verifiers_share_the_cores_that_are_left() -> None:
    verifier, fixed = ModelService(replicas=2), ModelService(threads=num_cores())
    assert Topology(verifiers=(verifier,)).threads_of(verifier) == max(1, num_cores() // 2)
    both = Topology(verifiers=(verifier, fixed))
    assert (both.threads_of(verifier), both.threads_of(fixed)) == (1, num_cores())
