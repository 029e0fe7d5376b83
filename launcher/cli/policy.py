"""Commands about tenants.yaml: schema, check. Knows their options; gateway/policy/tenants.py knows the file."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gateway.policy.schema import policy_schema
from gateway.policy.tenants import Tenant, Tenants, load_tenants
from launcher.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="Inspect tenants.yaml: who may call, and how text is drafted.")


@app.command()
def schema() -> None:
    """Print the JSON schema of tenants.yaml, for editors and other tools."""
    print(json.dumps(policy_schema(), indent=2))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The tenants file.")] = Path("tenants.yaml"),
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a tenants file, or what it says; exit code 2 if anything is wrong.

    With --json it prints every tenant with all defaults filled in, and never a key.
    """
    tenants = load_tenants(file)
    if as_json:
        print(json.dumps({"tenants": [described(tenant) for tenant in tenants.all]}))
    else:
        Console().print(as_table(file, tenants))


def described(tenant: Tenant) -> dict[str, object]:
    values = {field.name: getattr(tenant, field.name) for field in fields(tenant) if field.name != "key_sha256"}
    return {**values, "num_keys": len(tenant.key_sha256)}


def as_table(file: Path, tenants: Tenants) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=f"{file}: good; {len(tenants.all)} tenant(s)")
    for name in ("tenant", "who drafts", "chosen by", "draft tokens", "mode"):
        table.add_column(name, no_wrap=name != "who drafts")
    for tenant in tenants.all:
        table.add_row(
            tenant.name,
            ", ".join(tenant.active_proposers) or "none",
            "controller" if tenant.is_controlled else "this order",
            f"{tenant.min_draft_tokens}..{tenant.num_draft_tokens}" if tenant.is_controlled else draft_tokens(tenant),
            tenant.mode,
        )
    return table


def draft_tokens(tenant: Tenant) -> str:
    return str(tenant.num_draft_tokens if tenant.active_proposers else 0)
