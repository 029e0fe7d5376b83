"""`slipstream top`: its options. The work is in launcher/top."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from launcher import run_file
from launcher.cli import options
from launcher.cli.options import DEFAULT_GATEWAY
from launcher.run_file import Listed
from launcher.top.look import look_at
from launcher.top.screen import as_tables, show_live, views
from slipstream.config import runtime_dir
from slipstream.errors import Unavailable

app = typer.Typer()


@app.command()
def top(
    target: options.Target = DEFAULT_GATEWAY,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="host:port of a service's metrics, if `slipstream up` did not start it here; repeat for more."
        ),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two samples.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one view and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each view.")] = False,
) -> None:
    """Watch services at work: load, tokens/s, KV, and acceptance by tenant and proposer. Ctrl-C ends.

    With --json it prints one object a line.
    """
    every = views(partial(look_at, services_of(target, metrics or [])), interval)
    if not once and not as_json:
        show_live(Console(), every)
        return
    for view in every:
        if as_json:
            print(view.as_json_text(), flush=True)
        else:
            Console().print(as_tables(view))
        if once:
            return


def services_of(target: str, metrics: list[str]) -> list[Listed]:
    """Those of this machine behind a gateway that show metrics, and those given. Raises Unavailable without any."""
    listed = [service for service in run_file.read(runtime_dir(), target) if service.metrics]
    services = [*listed, *(Listed(name=address, address=address, metrics=address) for address in metrics)]
    if not services:
        raise Unavailable(f"no metrics are known of services behind {target}; give --metrics host:port of each")
    return services
