"""The manifests: whole, confined, and agreed on names and ports. Knows YAML; no cluster looks at them here."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.docker.command_lines import DOCKER, port, unknown_options, value

FOLDER = DOCKER / "kubernetes" / "cpu"
KINDS = ("gateway", "verifier", "drafter")


def documents(kind: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all((FOLDER / f"{kind}.yaml").read_text())}


def pod(kind: str) -> dict[str, Any]:
    spec = documents(kind)["Deployment"]["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def command(kind: str) -> list[str]:
    (container,) = pod(kind)["containers"]
    return [*container["command"], *container["args"]]


@pytest.mark.parametrize("folder", ["kubernetes/cpu", "kubernetes/gpu", "policy"])
def test_a_kustomization_names_files_that_exist(folder: str) -> None:
    kustomization = yaml.safe_load((DOCKER / folder / "kustomization.yaml").read_text())
    maps = [file for generator in kustomization.get("configMapGenerator", ()) for file in generator["files"]]
    named = [*kustomization.get("resources", ()), *maps]
    assert named
    assert [name for name in named if not (DOCKER / folder / name).exists()] == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("variant", ["cpu", "gpu"])
def test_kubectl_puts_the_manifests_together(variant: str) -> None:
    command = ["kubectl", "kustomize", str(DOCKER / "kubernetes" / variant)]
    text = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    made = [(document["kind"], document["metadata"]["name"]) for document in yaml.safe_load_all(text)]
    assert {("Deployment", kind) for kind in KINDS} | {("ConfigMap", "policy")} <= set(made)
    assert text.count(f"image: slipstream-engine:{'cuda' if variant == 'gpu' else 'cpu'}") == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_has_every_option_that_it_is_given(kind: str) -> None:
    assert unknown_options(command(kind)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_has_no_rights_that_it_does_not_need(kind: str) -> None:
    assert pod(kind)["securityContext"]["runAsNonRoot"]
    for container in (*pod(kind).get("initContainers", ()), *pod(kind)["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_selectors_pods_and_services_agree(kind: str) -> None:
    deployment, service = documents(kind)["Deployment"]["spec"], documents(kind)["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels == service["selector"] == {"app": kind}


@pytest.mark.parametrize("kind", KINDS)
def test_ports_are_those_that_the_service_listens_at(kind: str) -> None:
    (container,) = pod(kind)["containers"]
    ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
    options = {"grpc": "--listen", "http": "--http-listen", "metrics": "--metrics-listen"}
    assert ports == {name: port(command(kind), options[name]) for name in ports}
    assert {entry["targetPort"] for entry in documents(kind)["Service"]["spec"]["ports"]} <= set(ports)


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
def test_the_gateway_finds_every_pod_behind_a_name(kind: str) -> None:
    service = documents(kind)["Service"]
    assert service["spec"]["clusterIP"] == "None"  # such a name has the addresses of the pods, not one before them
    (entry,) = service["spec"]["ports"]
    assert value(command("gateway"), f"--{kind}") == f"dns:///{service['metadata']['name']}:{entry['port']}"
