"""`slipstream policy`: what it prints of a tenants file, and of one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.policy.schema import policy_schema
from launcher.cli import policy

EXAMPLE = Path(__file__).parents[3] / "gateway" / "tenants.example.yaml"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(policy.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_schema_is_printed_as_json() -> None:
    assert json.loads(run("schema")) == policy_schema()


def test_a_good_file_is_shown_tenant_by_tenant() -> None:
    output = run("check", str(EXAMPLE))
    assert "acme" in output
    assert "good; 3 tenant(s)" in output


def test_as_json_it_has_every_default_and_no_key() -> None:
    tenants = json.loads(run("check", str(EXAMPLE), "--json"))["tenants"]
    acme = tenants[0]
    assert (acme["name"], acme["num_keys"], acme["tokens_per_minute"]) == ("acme", 1, 600000)
    assert "key_sha256" not in acme


def test_a_bad_file_is_named_with_field_and_value(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: [{name: a, anonymous: true, mode: fast}]")
    with pytest.raises(ValueError, match=r"tenants\.yaml: tenants\[0\] \(a\): mode is 'fast'"):
        CliRunner().invoke(policy.app, ["check", str(file)], catch_exceptions=False)
