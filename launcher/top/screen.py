"""A view of the services on a terminal, once or live. Knows rich; no metric."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launcher.top.look import Look
from launcher.top.view import ServiceView, View, make_view

BAR_CELLS = 10


def views(look: Callable[[], Sequence[Look]], interval: float) -> Iterator[View]:
    """One each interval, of what happened in it, without end."""
    before = look()
    while True:
        time.sleep(interval)
        after = look()
        yield make_view(before, after)
        before = after


def show_live(console: Console, every: Iterator[View]) -> None:
    """Until Ctrl-C."""
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        try:
            for view in every:
                live.update(as_tables(view), refresh=True)
        except KeyboardInterrupt:
            return


def as_tables(view: View) -> Group:
    return Group(_totals(view), _services(view), _drafting(view))


def _totals(view: View) -> Text:
    rate = sum(one.tokens_per_second for one in view.drafting)
    gateways = [one for one in view.services if one.kind == "gateway"]
    running, queued = (sum(getattr(one, name) for one in gateways) for name in ("running", "waiting"))
    return Text(f"{rate:.1f} tok/s   {running} running, {queued} queued   over {view.seconds:.1f} s", style="bold")


def _services(view: View) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("service", no_wrap=True)
    for name in ("running", "waiting", "tok/s", "step ms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("KV blocks", no_wrap=True)
    for one in view.services:
        if one.kind:
            numbers = f"{one.running}", f"{one.waiting}", f"{one.tokens_per_second:.1f}"
            name = one.name if one.name.startswith(one.kind) else f"{one.kind} {one.name}"
            table.add_row(name, *numbers, f"{one.step_ms:.1f}" if one.step_ms else "", _kv(one))
        else:
            table.add_row(Text(one.name, style="red"), "", "", "", "", Text("unreachable", style="red"))
    return table


def _kv(service: ServiceView) -> str:
    if not service.kv_blocks_total:
        return ""
    filled = round(BAR_CELLS * service.kv_blocks_used / service.kv_blocks_total)
    return f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {service.kv_blocks_used}/{service.kv_blocks_total}"


def _drafting(view: View) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("tenant", "proposer"):
        table.add_column(name)
    for name in ("tok/s", "passes/s", "tok/pass", "acceptance"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in view.drafting:
        acceptance = "" if one.acceptance is None else f"{one.acceptance:.2f}"
        numbers = f"{one.tokens_per_second:.1f}", f"{one.passes_per_second:.1f}", f"{one.tokens_per_pass:.2f}"
        table.add_row(one.tenant, one.proposer, *numbers, acceptance)
    return table
