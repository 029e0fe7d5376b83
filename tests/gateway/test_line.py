"""Whose turn it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from gateway.line import Line, Ticket
from gateway.policy.tenants import Tenant

A = Tenant(name="a", anonymous=True)
B = Tenant(name="b", anonymous=True)
BIG = Tenant(name="big", anonymous=True, share=3)
HIGH = Tenant(name="high", anonymous=True, priority=1)
FEW = Tenant(name="few", anonymous=True, max_running=1)


def line(*tenants: Tenant) -> Line:
    made = Line()
    for tenant in tenants:
        made.add(ticket(tenant))
    return made


def ticket(tenant: Tenant) -> Ticket:
    loop = asyncio.new_event_loop()
    loop.close()
    return Ticket(tenant, loop.create_future())


def turns(waiting: Line, running: Counter[str] | None = None, number: int = 99) -> str:
    """Names of who goes, in order; each runs from then on."""
    running = Counter() if running is None else running
    names: list[str] = []
    while len(names) < number and (taken := waiting.take_next(running)):
        running[taken.tenant.name] += 1
        names.append(taken.tenant.name)
    return " ".join(names)


def test_tenants_take_turns_however_many_requests_one_has() -> None:
    assert turns(line(A, A, A, A, B, B)) == "a b a b a a"


def test_who_holds_places_already_waits_for_who_holds_less() -> None:
    assert turns(line(A, A, B, B, B), Counter(a=2)) == "b b a b a"


def test_with_one_place_at_a_time_they_alternate_too() -> None:
    waiting, names = line(A, A, A, B, B), []
    while taken := waiting.take_next({}):
        names.append(taken.tenant.name)
    assert names == ["a", "b", "a", "b", "a"]


def test_a_larger_share_gets_as_many_places_more() -> None:
    assert Counter(turns(line(*[A] * 20, *[BIG] * 20), number=12).split()) == {"big": 9, "a": 3}


def test_a_higher_priority_goes_first() -> None:
    assert turns(line(A, B, HIGH, HIGH)) == "high high a b"


def test_who_runs_as_many_as_it_may_lets_others_pass() -> None:
    waiting = line(FEW, FEW, A)
    assert turns(waiting) == "few a"
    assert (len(waiting), waiting.num_waiting(FEW)) == (1, 1)


def test_a_full_line_is_taken_from_who_has_most_of_it() -> None:
    waiting = line(A, A, A, B)
    assert waiting.may_displace(B)
    assert not waiting.may_displace(A)
    assert taken_last(waiting, 2) == ["a", "a"]


def test_low_priorities_make_room_for_higher_ones_never_the_other_way() -> None:
    waiting = line(HIGH, HIGH, HIGH, A)
    assert waiting.may_displace(HIGH)
    assert taken_last(waiting, 1) == ["a"]
    assert not waiting.may_displace(A)
    assert not Line().may_displace(A)


def test_a_ticket_that_leaves_is_gone_once_and_for_all() -> None:
    waiting, leaver = line(A), ticket(A)
    waiting.add(leaver)
    waiting.remove(leaver)
    waiting.remove(leaver)
    assert turns(waiting) == "a"
    waiting.remove(leaver)


def taken_last(waiting: Line, number: int) -> Sequence[str]:
    return [waiting.take_last().tenant.name for _ in range(number)]
