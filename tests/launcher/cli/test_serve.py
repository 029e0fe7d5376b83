"""Which topology `up` runs: from a file, from the models given, or the default; and what `config check` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.config import DEFAULT_HTTP_LISTEN, DEFAULT_LISTEN
from launcher.cli import serve
from launcher.topology import ModelService, Topology


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: Path, replicas: int) -> Path:
    path.write_text(f"verifiers: [{{replicas: {replicas}}}]")
    return path


def test_without_anything_one_verifier_and_the_default_addresses(tmp_path: Path) -> None:
    found = serve.topology(None, None, None)
    assert (found.verifiers, found.drafters) == ((ModelService(),), ())
    assert (found.gateway.listen, found.gateway.http) == (DEFAULT_LISTEN, DEFAULT_HTTP_LISTEN)


def test_a_file_in_the_folder_is_taken_unless_models_are_given(tmp_path: Path) -> None:
    write(tmp_path / "slipstream.yaml", 2)
    assert serve.topology(None, None, None).verifiers[0].replicas == 2
    assert serve.topology(None, tmp_path, None).verifiers[0].replicas == 1
    assert serve.topology(write(tmp_path / "other.yaml", 3), None, None).verifiers[0].replicas == 3


def test_a_file_and_models_are_too_much(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give --config, or --model and --draft-model, not both"):
        serve.topology(write(tmp_path / "slipstream.yaml", 2), tmp_path, None)


def test_the_default_model_is_fetched_only_if_a_verifier_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []

    def fetch() -> Path:
        fetched.append(1)
        return tmp_path

    monkeypatch.setattr(serve, "fetch_default_model", fetch)
    named = ModelService(model=Path("/"))
    assert serve.with_default_model(Topology(verifiers=(named,))).verifiers == (named,)
    assert fetched == []
    filled = serve.with_default_model(Topology(verifiers=(named, ModelService())))
    assert [verifier.model for verifier in filled.verifiers] == [Path("/"), tmp_path]


def test_check_prints_the_topology_with_all_defaults(tmp_path: Path) -> None:
    write(tmp_path / "slipstream.yaml", 2)
    result = CliRunner().invoke(serve.app, ["config", "check", "--json"])
    described = json.loads(result.output)
    assert (described["verifiers"][0]["replicas"], described["verifiers"][0]["kv_memory"]) == (2, "512MiB")
    assert "2 verifier(s), 0 drafter(s)" in CliRunner().invoke(serve.app, ["config", "check"]).output


def test_a_tenants_file_that_cannot_be_used_is_told_before_any_model_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: 5")
    with pytest.raises(ValueError, match="must hold `tenants:`"):
        CliRunner().invoke(serve.app, ["up", "--tenants", str(file)], catch_exceptions=False)
