"""How often what does not draft is tried."""

from __future__ import annotations

from gateway.control.probing import FIRST_INTERVAL, LAST_INTERVAL, PROBE_PASSES, Probing


def passes_until_due(probing: Probing) -> int:
    passes = 1
    while not probing.is_due():
        passes += 1
    return passes


def test_tries_that_change_nothing_become_rare() -> None:
    probing, waits = Probing(), []
    for _ in range(7):
        waits.append(passes_until_due(probing))
        probing.note_end(changed=False)
    assert waits == [64, 128, 256, 512, 1024, 1024, 1024]
    assert PROBE_PASSES / LAST_INTERVAL < 0.02


def test_one_that_changes_something_is_followed_by_the_next_soon() -> None:
    probing = Probing()
    for changed in (False, False, True):
        passes_until_due(probing)
        probing.note_end(changed=changed)
    assert passes_until_due(probing) == FIRST_INTERVAL


def test_candidates_take_turns() -> None:
    probing = Probing()
    assert [probing.turn(2) for _ in range(4)] == [0, 1, 0, 1]
