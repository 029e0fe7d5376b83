"""From a topology to command lines, and the order in which services start."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.processes import ProcessConfig, Processes
from launcher.stack import (
    BETWEEN,
    Service,
    ServiceSpec,
    Stack,
    drafter_specs,
    gateway_spec,
    model_specs,
    single_machine,
    verifier_specs,
)
from launcher.topology import ONE_PROCESS, GatewayService, ModelService, TlsFiles, Topology
from tests.wire.certificates import Authority

ECHO = Path(__file__).parents[1] / "wire" / "echo_service.py"
NO_PEERS = Stack(())


def option(spec: ServiceSpec, flag: str) -> list[str]:
    return [value for name, value in zip(spec.command, spec.command[1:], strict=False) if name == flag]


def test_a_command_names_module_addresses_and_limits(tmp_path: Path) -> None:
    service = ModelService(
        model=tmp_path, listen="h:1", metrics="h:2", kv_memory="2GiB", max_model_len=64, max_num_seqs=3, name="big"
    )
    (spec,) = verifier_specs(Topology(verifiers=(service,)))
    assert spec.command[:7] == [sys.executable, "-m", "verifier_svc", "--listen", "h:1", "--metrics-listen", "h:2"]
    wanted = {
        "--model": str(tmp_path),
        "--kv-memory-mib": "2048",
        "--max-model-len": "64",
        "--max-num-seqs": "3",
        "--name": "big",
        "--num-threads": str(spec.num_threads),
    }
    assert {flag: option(spec, flag) for flag in wanted} == {flag: [value] for flag, value in wanted.items()}
    assert "--target-model" not in spec.command


def test_a_verifier_of_several_ranks_is_one_service_that_starts_the_others(tmp_path: Path) -> None:
    service = ModelService(model=tmp_path, devices=("cuda",), tensor_parallel_size=4)
    (spec,) = verifier_specs(Topology(verifiers=(service,)))
    assert (option(spec, "--tensor-parallel-size"), option(spec, "--device")) == (["4"], ["cuda"])


def test_several_services_of_a_kind_are_numbered_and_one_is_not(tmp_path: Path) -> None:
    pair = ModelService(model=tmp_path, listen="h:5", replicas=2, devices=("cuda:0", "cuda:1"))
    specs = verifier_specs(Topology(verifiers=(pair, ModelService(model=tmp_path))))
    assert [(spec.name, spec.listen) for spec in specs] == [
        ("verifier1", "h:5"),
        ("verifier2", "h:6"),
        ("verifier3", "127.0.0.1:0"),
    ]
    assert [option(spec, "--device") for spec in specs] == [["cuda:0"], ["cuda:1"], ["cpu"]]
    assert [spec.name for spec in verifier_specs(single_machine(tmp_path))] == ["verifier"]


def test_in_one_process_a_verifiers_command_holds_its_drafters_options(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    service = ModelService(model=tmp_path, metrics="h:1", replicas=2, devices=("cuda:0", "cuda:1"))
    drafter = ModelService(model=draft, metrics="h:5", replicas=2, devices=("cuda:0", "cuda:1"))
    topology = Topology(verifiers=(service,), drafters=(drafter,), placement=ONE_PROCESS)
    first, second = model_specs(topology)
    at = second.command.index(BETWEEN)
    assert (second.name, second.module, second.kind) == ("verifier2", "launcher.host", "verifier")
    assert (option(second, "--model"), option(second, "--device")) == ([str(tmp_path), str(draft)], ["cuda:1"] * 2)
    assert second.command[at + 1 : at + 3] == ["--metrics-listen", "h:6"]
    assert [spec.holds("drafter") for spec in (first, second, *verifier_specs(topology))] == [True, True, False, False]


def test_a_drafter_is_told_the_first_verifiers_model_unless_it_has_its_own(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (spec,) = drafter_specs(single_machine(tmp_path, draft))
    assert (option(spec, "--model"), option(spec, "--target-model")) == ([str(draft)], [str(tmp_path)])
    own = Topology(verifiers=(ModelService(model=tmp_path),), drafters=(ModelService(model=draft, target_model=draft),))
    assert option(drafter_specs(own)[0], "--target-model") == [str(draft)]


def test_a_head_is_told_to_its_drafter_and_to_the_verifier_that_makes_its_features(tmp_path: Path) -> None:
    head = tmp_path / "head"
    head.mkdir()
    topology = Topology(
        verifiers=(ModelService(model=tmp_path, features=head),),
        drafters=(ModelService(model=head, proposer="eagle3"),),
    )
    (verifier,), (drafter,) = verifier_specs(topology), drafter_specs(topology)
    assert option(verifier, "--features") == option(drafter, "--model") == [str(head)]
    assert (option(drafter, "--proposer"), option(verifier, "--proposer")) == (["eagle3"], [])


def test_a_drafter_is_told_where_adapters_are_and_which_to_begin_with(tmp_path: Path) -> None:
    (tmp_path / "adapters").mkdir()
    drafter = ModelService(model=tmp_path, adapters_dir=tmp_path / "adapters", adapters=("legal", "code"))
    (spec,) = drafter_specs(Topology(verifiers=(ModelService(model=tmp_path),), drafters=(drafter,)))
    words = " ".join(spec.options)
    assert f"--adapters-dir {tmp_path / 'adapters'} --max-adapters 4" in words
    assert f"--adapter legal={tmp_path / 'adapters' / 'legal'} --adapter code=" in words


def test_adapters_without_their_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"adapters is \['legal'\]; give adapters_dir"):
        ModelService(model=tmp_path, adapters=("legal",))


def test_a_gateway_is_told_of_peers_here_and_elsewhere(tmp_path: Path) -> None:
    gateway = GatewayService(
        tenants=tmp_path, http="h:8", watch_key_sha256="0" * 64, verifiers=("far:1",), drafters=("far:2",)
    )
    spec = gateway_spec(Topology(gateway=gateway), NO_PEERS)
    assert option(spec, "--verifier") == ["far:1"]
    assert option(spec, "--http-listen") == ["h:8"]
    assert option(spec, "--watch-key-sha256") == ["0" * 64]
    assert option(spec, "--drafter") == ["far:2"]
    assert option(spec, "--tenants") == [str(tmp_path)]


def test_a_gateway_is_told_of_a_tritonserver_its_model_and_its_ca(tmp_path: Path) -> None:
    gateway = GatewayService(
        verifiers=("far:1",), tritonserver="far:3", tritonserver_model="m", tritonserver_ca=tmp_path
    )
    spec = gateway_spec(Topology(gateway=gateway), NO_PEERS)
    flags = ("--tritonserver", "--tritonserver-model", "--tritonserver-ca")
    assert [option(spec, flag) for flag in flags] == [["far:3"], ["m"], [str(tmp_path)]]
    without = gateway_spec(Topology(gateway=GatewayService(verifiers=("far:1",))), NO_PEERS)
    assert [option(without, flag) for flag in flags] == [[], [], []]


def test_with_certificates_services_know_each_other_and_the_gateway_its_clients_if_it_should(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    identity = authority.sign()
    tls = TlsFiles(ca=authority.file, certificate=identity.certificate, key=identity.key)
    topology = Topology(verifiers=(ModelService(model=tmp_path),), tls=tls)
    (verifier,), gateway = verifier_specs(topology), gateway_spec(topology, NO_PEERS)
    own = {"--tls-cert": [str(identity.certificate)], "--tls-key": [str(identity.key)]}
    peer = {"--peer-ca": [str(authority.file)], "--peer-cert": own["--tls-cert"], "--peer-key": own["--tls-key"]}
    assert {flag: option(gateway, flag) for flag in (own | peer)} == own | peer
    assert option(gateway, "--tls-client-ca") == []
    assert {flag: option(verifier, flag) for flag in own} == own
    assert option(verifier, "--tls-client-ca") == [str(authority.file)]
    strict = replace(topology, tls=replace(tls, client_ca=clients.file))
    assert option(gateway_spec(strict, NO_PEERS), "--tls-client-ca") == [str(clients.file)]


def test_services_start_in_order_the_gateway_last_and_keep_the_ports_they_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ServiceSpec, "command", property(lambda spec: [sys.executable, str(ECHO), spec.listen, *spec.options])
    )
    from launcher.stack import start_stack

    started: list[Service] = []
    with Processes(ProcessConfig(start_seconds=10, stop_seconds=5)) as processes:
        stack = start_stack(processes, single_machine(tmp_path, tmp_path), started.append)
    assert [service.spec.name for service in started] == ["verifier", "drafter", "gateway"]
    assert option(stack.services[2].spec, "--verifier") == stack.addresses("verifier")
    assert option(stack.services[2].spec, "--drafter") == stack.addresses("drafter")
    assert all(service.address == service.process.address != "127.0.0.1:0" for service in stack.services)
    assert not any(service.process.running for service in started)


def test_every_service_is_told_where_its_traces_go(tmp_path: Path) -> None:
    model = ModelService(model=tmp_path, otlp_endpoint="http://h:4318")
    topology = Topology(verifiers=(model,), drafters=(model,), gateway=GatewayService(otlp_endpoint="http://h:4318"))
    specs = [*verifier_specs(topology), *drafter_specs(topology), gateway_spec(topology, NO_PEERS)]
    assert [option(spec, "--otlp-endpoint") for spec in specs] == [["http://h:4318"]] * 3


def test_the_gateway_is_told_of_a_drafter_where_its_verifier_is(tmp_path: Path) -> None:
    with Processes() as processes:
        process = processes.start("verifier", ["true"], {})
    drafter = ("--model", "draft")
    spec = ServiceSpec(
        kind="verifier", name="v", module="m", listen="h:1", metrics="", options=(), drafter_options=drafter
    )
    gateway = gateway_spec(Topology(verifiers=(ModelService(model=tmp_path),)), Stack((Service(spec, process),)))
    assert (option(gateway, "--verifier"), option(gateway, "--drafter")) == (["h:1"], ["h:1"])
