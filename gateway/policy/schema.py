"""The JSON schema of tenants.yaml, made from the fields that are checked on loading. Knows fields; reads no file."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Final

from gateway.policy.tenants import RULES, Tenant

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_KEYS_OR_ANONYMOUS: Final = {
    "oneOf": [
        {"required": ["anonymous"], "properties": {"anonymous": {"const": True}, "key_sha256": {"maxItems": 0}}},
        {
            "required": ["key_sha256"],
            "properties": {"anonymous": {"const": False}, "key_sha256": {"minItems": 1}},
        },
    ]
}


def policy_schema() -> dict[str, Any]:
    """Loading checks what it cannot say: names and keys are one tenant's only; min_draft_tokens <= num_draft_tokens."""
    return {
        "$schema": DIALECT,
        "title": "Slipstream tenants.yaml",
        "type": "object",
        "required": ["tenants"],
        "properties": {"tenants": {"type": "array", "minItems": 1, "items": _tenant_schema()}},
    }


def _tenant_schema() -> dict[str, Any]:
    properties = {name: {"description": rule.allowed, **rule.schema} for name, rule in RULES.items()}
    for field in fields(Tenant):
        if field.default is not MISSING:
            default = field.default
            properties[field.name]["default"] = list(default) if isinstance(default, tuple) else default
    return {
        "type": "object",
        "required": [field.name for field in fields(Tenant) if field.default is MISSING],
        "additionalProperties": False,
        "properties": properties,
        **_KEYS_OR_ANONYMOUS,
    }
