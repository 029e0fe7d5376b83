"""What images are built from: no torch for the gateway, releases that pyproject.toml allows, files that are sent."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from slipstream.config import HUGE_PAGES, SPIN_COUNT
from tests.docker.command_lines import DOCKER

ROOT = DOCKER.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = {
    canonicalize_name(line.partition("==")[0]): line.partition("==")[2]
    for line in (DOCKER / "constraints.txt").read_text().splitlines()
    if "==" in line and not line.startswith("#")
}


def needs(requirement: Requirement, found: set[str]) -> set[str]:
    """All that comes along with it on this platform, with what was found before."""
    name = canonicalize_name(requirement.name)
    if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
        return found
    found.add(name)
    try:
        below = requires(requirement.name) or []
    except PackageNotFoundError:
        return found
    extras = ["", *requirement.extras]
    for wanted in map(Requirement, below):
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            wanted.marker = None
            needs(wanted, found)
    return found


def test_what_the_gateway_is_installed_from_brings_no_torch() -> None:
    found: set[str] = set()
    for text in PROJECT["dependencies"]:
        needs(Requirement(text), found)
    assert "grpcio" in found
    assert not found & {"torch", "triton", "transformers", "xgrammar", "safetensors"}


@pytest.mark.parametrize("extra", ["", "engine", "grammar", "model"])
def test_pinned_releases_are_those_that_the_project_allows(extra: str) -> None:
    texts = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    wanted = [Requirement(text) for text in texts]
    bad = [str(one) for one in wanted if not one.specifier.contains(PINNED.get(canonicalize_name(one.name), ""))]
    free = {"torch", "triton", "slipstream"}  # torch brings the triton that it was made with
    assert [text for text in bad if Requirement(text).name not in free] == []


@pytest.mark.parametrize("name", ["gateway.Dockerfile", "engine.Dockerfile"])
def test_all_that_an_image_copies_is_sent_to_the_builder(name: str) -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DOCKER / name).read_text(), re.MULTILINE)
    paths = {path for paths in copied for path in paths.split()}
    assert "slipstream" in paths
    assert paths - sent == set()
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_an_engine_has_the_environment_that_it_has_under_up() -> None:
    text = (DOCKER / "engine.Dockerfile").read_text()
    assert f"GLIBC_TUNABLES={HUGE_PAGES}" in text
    assert f"GOMP_SPINCOUNT={SPIN_COUNT}" in text
    assert "OMP_WAIT_POLICY=PASSIVE" in text
