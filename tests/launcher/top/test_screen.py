"""What the terminal shows of a view, and that each view is of its own interval."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from itertools import islice

from rich.console import Console

from launcher.top.look import Look
from launcher.top.screen import as_tables, show_live, views
from launcher.top.view import View, make_view
from tests.launcher.top.looks import gateway, tally, verifier


def make() -> View:
    gone = Look(name="drafter", at=1.0)
    before = [verifier(0.0, tally(0), 0), gone, gateway(0.0, tally(0))]
    return make_view(before, [verifier(1.0, tally(4), 1), gone, gateway(1.0, tally(4))])


def test_services_load_and_drafting_are_shown() -> None:
    console = Console(file=StringIO(), width=100)
    console.print(as_tables(make()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "12.0 tok/s 3 running, 2 queued over 1.0 s"
    assert "verifier 3 0 12.0 20.0 █████░░░░░ 5/10" in lines
    assert "drafter unreachable" in lines
    assert "a ngram 12.0 4.0 3.00 0.50" in lines


def test_each_view_is_of_its_own_interval() -> None:
    looks = iter([[gateway(0.0, tally(0))], [gateway(1.0, tally(4))], [gateway(2.0, tally(5))]])
    rates = [view.drafting[0].passes_per_second for view in islice(views(lambda: next(looks), 0.0), 2)]
    assert rates == [4.0, 1.0]


def test_ctrl_c_ends_the_live_view_without_a_word() -> None:
    def interrupted() -> Iterator[View]:
        yield make()
        raise KeyboardInterrupt

    console = Console(file=StringIO(), width=100)
    show_live(console, interrupted())
    assert "12.0 tok/s" in console.file.getvalue()  # type: ignore[attr-defined]
