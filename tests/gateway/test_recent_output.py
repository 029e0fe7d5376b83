"""What a tenant said of late: its own only, bounded, read in pieces."""

from __future__ import annotations

import asyncio

from gateway.recent_output import TOKENS_AT_ONCE, Owner, RecentOutputs

ACME, OTHER = Owner("acme", "v1"), Owner("other", "v1")
SAID = [5, 6, 7, 8, 9]


def proposed(outputs: RecentOutputs, owner: Owner, *token_ids: int) -> tuple[int, ...]:
    index = outputs.index(owner, 1000)
    assert index is not None
    index.extend(token_ids)
    return index.propose(2)


async def read(outputs: RecentOutputs) -> None:
    while outputs._is_reading:
        await asyncio.sleep(0)


async def test_later_requests_of_the_tenant_are_drafted_from_it() -> None:
    outputs = RecentOutputs()
    outputs.of(ACME, 1000)
    outputs.add(ACME, SAID)
    await read(outputs)
    assert proposed(outputs, ACME, 1, 6, 7) == (8, 9)


async def test_no_other_tenant_and_no_other_vocabulary_sees_any_of_it() -> None:
    outputs = RecentOutputs()
    for owner in (ACME, OTHER):
        outputs.of(owner, 1000)
    outputs.add(ACME, SAID)
    await read(outputs)
    assert proposed(outputs, OTHER, 1, 6, 7) == ()
    assert proposed(outputs, Owner("acme", "v2"), 1, 6, 7) == ()


async def test_nothing_is_kept_for_a_tenant_whose_policy_does_not_ask_for_it() -> None:
    outputs = RecentOutputs()
    outputs.add(ACME, SAID)
    await read(outputs)
    assert proposed(outputs, ACME, 1, 6, 7) == ()


def test_without_a_bound_worth_having_there_is_no_index_of_shared_text() -> None:
    assert RecentOutputs().index(ACME, 0) is None


async def test_another_bound_forgets_what_was_kept_under_the_old_one() -> None:
    outputs = RecentOutputs()
    text = outputs.of(ACME, 100)
    outputs.add(ACME, SAID)
    await read(outputs)
    assert len(text) == len(SAID) + 1
    assert len(outputs.of(ACME, 50)) == 0


async def test_a_long_text_is_read_in_pieces_between_other_work() -> None:
    outputs = RecentOutputs()
    text = outputs.of(ACME, 100 * TOKENS_AT_ONCE)
    outputs.add(ACME, list(range(10 * TOKENS_AT_ONCE)))
    await asyncio.sleep(0)
    assert 0 < len(text) <= 2 * TOKENS_AT_ONCE
    await read(outputs)
    assert len(text) == 10 * TOKENS_AT_ONCE + 1


async def test_many_texts_stay_within_the_bound() -> None:
    outputs = RecentOutputs()
    text = outputs.of(ACME, 64)
    for start in range(100):
        outputs.add(ACME, list(range(start, start + 50)))
    await read(outputs)
    assert len(text) <= 64
