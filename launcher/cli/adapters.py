"""Commands about adapters of draft models: load, unload, list. Knows their options; launcher/adapters.py asks."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from launcher import adapters, run_file
from launcher.cli import options
from slipstream.config import runtime_dir
from slipstream.exchange import AdapterList
from slipstream.wire.tls import ClientTls, client_tls

app = typer.Typer(no_args_is_help=True, help="LoRA adapters of drafters: load, unload, list.")

Name = Annotated[str, typer.Argument(help="Name of the adapter, as `adapter` in tenants.yaml has it.")]
Drafter = Annotated[
    list[str] | None,
    typer.Option(help="host:port, may be given again; without it all that `slipstream up` started behind --target."),
]


@app.command("load")
def load_command(
    name: Name,
    path: Annotated[str, typer.Argument(help="Folder of PEFT files, in the drafter's --adapters-dir.")],
    drafter: Drafter = None,
    target: options.Target = options.DEFAULT_GATEWAY,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Load an adapter, or a newer one of its name; running requests keep the one that they began with."""
    tls = client_tls(tls_ca, tls_cert, tls_key)
    _show({one: adapters.ask(one, adapters.load(name, path), tls) for one in _takers(drafter, target, tls)}, as_json)


@app.command("unload")
def unload_command(
    name: Name,
    drafter: Drafter = None,
    target: options.Target = options.DEFAULT_GATEWAY,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Take no new requests for an adapter; its place is free when those that run with it have ended."""
    tls = client_tls(tls_ca, tls_cert, tls_key)
    _show({one: adapters.ask(one, adapters.unload(name), tls) for one in _takers(drafter, target, tls)}, as_json)


@app.command("list")
def list_command(
    drafter: Drafter = None,
    target: options.Target = options.DEFAULT_GATEWAY,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what drafters hold, how many sequences use it, and the memory that it takes."""
    tls = client_tls(tls_ca, tls_cert, tls_key)
    _show({one: adapters.ask(one, adapters.listed(), tls) for one in _drafters(drafter, target)}, as_json)


def _drafters(named: list[str] | None, target: str) -> list[str]:
    here = [one.address for one in run_file.read(runtime_dir(), target) if one.name.startswith("drafter")]
    if not (named or here):
        raise ValueError(f"no drafter is known behind {target} on this machine; give --drafter host:port")
    return named or here


def _takers(named: list[str] | None, target: str, tls: ClientTls | None) -> list[str]:
    """Those that are named; else those that have room for adapters, for heads and parallel drafts have none."""
    known = _drafters(named, target)
    takers = named or [one for one in known if adapters.ask(one, adapters.listed(), tls).max_adapters]
    if not takers:
        raise ValueError(f"no drafter behind {target} takes adapters; start one with --adapters-dir")
    return takers


def _show(held: dict[str, AdapterList], as_json: bool) -> None:
    if as_json:
        print(adapters.as_json_text(held))
    else:
        Console().print(adapters.as_table(held))
