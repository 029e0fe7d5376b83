"""The published schema against what loading accepts."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.schema import policy_schema
from gateway.policy.tenants import PROPOSERS, RULES, Tenant, load_tenants

EXAMPLE = Path(__file__).parents[3] / "gateway" / "tenants.example.yaml"
VALIDATOR = jsonschema.Draft202012Validator(policy_schema())
LIMITS = {name: rule.schema for name, rule in RULES.items() if "minimum" in rule.schema}
WORDS = ["ngram", "draft_model", "none", "auto", "magic"]


def loads(entry: dict[str, Any], folder: Path) -> bool:
    file = folder / "tenants.yaml"
    file.write_text(yaml.safe_dump({"tenants": [entry]}))
    try:
        load_tenants(file)
    except ValueError:
        return False
    return True


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """One field of an otherwise good tenant is anything, near its limits if it has some."""
    entry: dict[str, Any] = {"name": "a", "anonymous": True, "num_draft_tokens": 64}
    name = draw(st.sampled_from(sorted(set(RULES) - {"key_sha256", "anonymous"})))
    near = [value + shift for key in ("minimum", "maximum") for value in [LIMITS.get(name, {}).get(key, 0)]
            for shift in (-1, 0, 1)]  # fmt: skip
    lists = st.lists(st.sampled_from(WORDS), max_size=3)
    entry[name] = draw(st.sampled_from([*near, 0.5, True, None, "", *WORDS, "ratio", "fixed"]) | lists)
    return entry


def test_it_is_a_schema_and_json() -> None:
    jsonschema.Draft202012Validator.check_schema(policy_schema())
    assert json.loads(json.dumps(policy_schema())) == policy_schema()


def test_every_field_is_checked_and_published() -> None:
    assert {field.name for field in fields(Tenant)} == set(RULES)


def test_every_field_is_explained_where_policies_are() -> None:
    page = (Path(__file__).parents[3] / "docs" / "policy.md").read_text()
    of_callers = {"name", "key_sha256", "anonymous"}
    assert [name for name in RULES if name not in of_callers and f"`{name}`" not in page] == []


def test_the_example_is_valid() -> None:
    VALIDATOR.validate(yaml.safe_load(EXAMPLE.read_text()))


@settings(max_examples=150, deadline=None)
@given(entry=entries())
def test_it_accepts_what_loading_accepts_and_nothing_else(entry: dict[str, Any], tmp_path_factory: Any) -> None:
    if entry["num_draft_tokens"] in range(64):
        entry["min_draft_tokens"] = 0
    assert VALIDATOR.is_valid({"tenants": [entry]}) == loads(entry, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a"},
        {"name": "a", "anonymous": False},
        {"name": "a", "key_sha256": []},
        {"name": "a", "anonymous": True, "key_sha256": ["a" * 64]},
        {"name": "a", "key_sha256": ["A" * 64]},
        {"name": "a", "anonymous": True, "speed": 9},
        {"anonymous": True},
    ],
)
def test_both_refuse_a_tenant_without_a_way_in_or_with_unknown_fields(entry: dict[str, Any], tmp_path: Path) -> None:
    assert not VALIDATOR.is_valid({"tenants": [entry]})
    assert not loads(entry, tmp_path)


@pytest.mark.parametrize("proposers", ["auto", ["none"], ["ngram"], ["draft_model", "ngram"], list(PROPOSERS)])
def test_both_accept_proposers_in_order_or_auto(proposers: Any, tmp_path: Path) -> None:
    entry = {"name": "a", "anonymous": True, "proposers": proposers}
    assert VALIDATOR.is_valid({"tenants": [entry]})
    assert loads(entry, tmp_path)
