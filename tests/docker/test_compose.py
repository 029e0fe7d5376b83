"""compose.yaml: docker-compose takes it, services take its commands, and containers may do no more than they need."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from gateway.policy.tenants import load_tenants
from tests.docker.command_lines import DOCKER, port, unknown_options, value

ENGINES = ("verifier-1", "verifier-2", "drafter-1", "drafter-2")
OURS = (*ENGINES, "gateway")


def read(name: str) -> dict[str, Any]:
    document = yaml.safe_load((DOCKER / name).read_text())
    assert isinstance(document, dict)
    return document


SERVICES: dict[str, dict[str, Any]] = read("compose.yaml")["services"]
GPU_SERVICES: dict[str, dict[str, Any]] = read("compose.gpu.yaml")["services"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="needs docker-compose")
@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]], ids=["cpu", "gpu"])
def test_docker_compose_takes_the_files(files: list[str]) -> None:
    options = [word for name in files for word in ("-f", str(DOCKER / name))]
    subprocess.run(["docker-compose", *options, "config", "--quiet"], check=True, timeout=60)


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_old_and_new_versions_of_compose_know_the_top_level_keys(name: str) -> None:
    keys = {key for key in read(name) if not key.startswith("x-")}
    assert keys <= {"services", "volumes"}


@pytest.mark.parametrize("services", [SERVICES, GPU_SERVICES], ids=["cpu", "gpu"])
def test_services_have_every_option_that_their_command_gives(services: dict[str, dict[str, Any]]) -> None:
    commands = [services[name]["command"].split() for name in OURS if name in services]
    assert len(commands) >= len(ENGINES)
    assert [unknown_options(command) for command in commands] == [[]] * len(commands)


def test_an_option_that_a_service_does_not_have_is_found() -> None:
    assert unknown_options(["python", "-m", "gateway", "--listen", "0.0.0.0:1", "--wings", "2"]) == ["--wings"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "model"])
def test_a_container_that_dies_is_started_again_and_its_health_is_looked_at(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", OURS)
def test_the_health_check_asks_where_the_service_listens(name: str) -> None:
    listen = port(SERVICES[name]["command"].split(), "--listen")
    assert SERVICES[name]["healthcheck"]["test"][-1] == f"127.0.0.1:{listen}"


def test_only_this_machine_reaches_what_is_published() -> None:
    published = [address for service in SERVICES.values() for address in service.get("ports", ())]
    assert len(published) == 4
    assert all(address.startswith("127.0.0.1:") for address in published)


def test_the_gateway_calls_its_peers_by_names_that_they_have() -> None:
    command = SERVICES["gateway"]["command"].split()
    for kind in ("verifier", "drafter"):
        (alias,) = SERVICES[f"{kind}-1"]["networks"]["default"]["aliases"]
        listen = port(SERVICES[f"{kind}-1"]["command"].split(), "--listen")
        assert value(command, f"--{kind}") == f"dns:///{alias}:{listen}"


def test_prometheus_asks_where_metrics_are_shown() -> None:
    jobs = read("prometheus/prometheus.yml")["scrape_configs"]
    asked = {job["job_name"]: job["dns_sd_configs"][0]["port"] for job in jobs}
    names = {"gateway": "gateway", "verifier": "verifier-1", "drafter": "drafter-1"}
    assert asked == {job: port(SERVICES[name]["command"].split(), "--metrics-listen") for job, name in names.items()}


def test_the_policy_can_be_used() -> None:
    assert [tenant.name for tenant in load_tenants(DOCKER / "policy" / "tenants.yaml").all] == ["public"]
